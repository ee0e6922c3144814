package render

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

const testNamespace = "storage"

// ask is an input whose StorageCluster says what the function writes into its spec.
func ask(write func(*v1beta1.StorageClusterSpec)) Input {
	c := &v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: "mine", UID: "1234"}}
	if write != nil {
		write(&c.Spec)
	}
	return Input{Cluster: c, Namespace: testNamespace, Has: everyKind}
}

func everyKind(schema.GroupKind) bool { return true }

func noKind(schema.GroupKind) bool { return false }

func rendered(t *testing.T, in Input) []*unstructured.Unstructured {
	t.Helper()
	return check.Got(Objects(in))(t)
}

// look returns the object of a kind and name, nil if there is none. It must have no field that its type does not have.
func look[T any](t *testing.T, in Input, kind, name string) *T {
	t.Helper()
	for _, o := range rendered(t, in) {
		if o.GetKind() == kind && o.GetName() == name {
			typed := new(T)
			check.OK(t, decode(o, typed))
			return typed
		}
	}
	return nil
}

// must is look for what has to be there.
func must[T any](t *testing.T, in Input, kind, name string) *T {
	t.Helper()
	o := look[T](t, in, kind, name)
	if o == nil {
		t.Fatalf("there is no %s %s", kind, name)
	}
	return o
}

// keys are the objects as KIND NAME, in order.
func keys(objects []*unstructured.Unstructured) (all []string) {
	for _, o := range objects {
		all = append(all, o.GetKind()+" "+o.GetName())
	}
	return all
}

// everything asks for all that there can be.
func everything() Input {
	in := ask(func(s *v1beta1.StorageClusterSpec) {
		s.Debug = true
		s.SecretRef = &v1beta1.SecretReference{Name: "access"}
		s.Distribution = "openshift-4"
		s.CSI = v1beta1.CSISpec{
			MaxVolumesPerNode: 20, Credentials: v1beta1.CSICredentials{Provision: true, ControllerPublish: true, NodePublish: true, ControllerExpand: true},
		}
		s.Images = v1beta1.Images{SnapshotController: "r/s:1", CSINodeDriverRegistrar: "r/n:1", CSILivenessProbe: "r/l:1"}
		s.Ingress = v1beta1.IngressSpec{Enabled: true, Host: "holdfast.example", TLS: true}
		s.Pools = []v1beta1.PoolSpec{{Name: "fast", Path: "/srv/fast"}, {Name: "disk", Devices: &v1beta1.DeviceSelector{Model: "x"}}}
		s.StorageClasses = []v1beta1.StorageClassSpec{{Name: "fast", Pool: "fast"}, {Name: "slow", Default: true}}
	})
	in.Secret = map[string][]byte{"tls.crt": []byte("c"), "tls.key": []byte("k")}
	for _, pair := range []string{"csiProvision", "csiControllerPublish", "csiNodePublish", "csiControllerExpand"} {
		in.Secret[pair+"Username"], in.Secret[pair+"Password"] = []byte(pair), []byte("secret of "+pair)
	}
	return in
}

// inputs are different ones, for what holds for all of them.
func inputs() map[string]Input {
	set := everything()
	set.Cluster.Spec.Controller.Kind = v1beta1.AsStatefulSet
	bare := ask(nil)
	bare.Has = nil
	return map[string]Input{
		"nothing said":  ask(nil),
		"no more kinds": bare,
		"everything":    everything(),
		"a StatefulSet": set,
		"without CSI":   ask(func(s *v1beta1.StorageClusterSpec) { s.CSI.Enabled = new(false) }),
	}
}

func TestRender_EveryObjectIsLabelledAsOurs(t *testing.T) {
	for name, in := range inputs() {
		for _, o := range rendered(t, in) {
			want := map[string]string{
				"app.kubernetes.io/name": "holdfast", "app.kubernetes.io/part-of": "holdfast",
				"app.kubernetes.io/managed-by": "holdfast-operator", "app.kubernetes.io/instance": "mine",
			}
			for key, value := range want {
				if o.GetLabels()[key] != value {
					t.Errorf("%s: %s %s has the labels %v", name, o.GetKind(), o.GetName(), o.GetLabels())
				}
			}
			if !maps.Equal(want, Labels(in.Cluster)) {
				t.Errorf("Labels says %v", Labels(in.Cluster))
			}
			owner := []metav1.OwnerReference{{APIVersion: "holdfast.dev/v1beta1", Kind: "StorageCluster", Name: "mine", UID: "1234", Controller: new(true), BlockOwnerDeletion: new(false)}}
			if !reflect.DeepEqual(o.GetOwnerReferences(), owner) {
				t.Errorf("%s: %s %s belongs to %v", name, o.GetKind(), o.GetName(), o.GetOwnerReferences())
			}
		}
	}
}

func TestRender_ClusterOutsideTheAPIOwnsNothing(t *testing.T) {
	in := ask(nil)
	in.Cluster.UID = ""
	for _, o := range rendered(t, in) {
		if len(o.GetOwnerReferences()) > 0 {
			t.Errorf("%s %s belongs to %v", o.GetKind(), o.GetName(), o.GetOwnerReferences())
		}
	}
}

func TestRender_NamespacedObjectsAreInTheNamespace(t *testing.T) {
	namespaced := map[string]bool{
		"Secret": true, "ServiceAccount": true, "Role": true, "RoleBinding": true, "ConfigMap": true, "DaemonSet": true, "Deployment": true,
		"StatefulSet": true, "Service": true, "Ingress": true, "PodMonitor": true,
	}
	for name, in := range inputs() {
		for _, o := range rendered(t, in) {
			want := ""
			if namespaced[o.GetKind()] {
				want = testNamespace
			}
			if o.GetNamespace() != want {
				t.Errorf("%s: %s %s is in namespace %q, not %q", name, o.GetKind(), o.GetName(), o.GetNamespace(), want)
			}
			if content, err := json.Marshal(o); err != nil || strings.Contains(string(content), "holdfast-system") {
				t.Errorf("%s: %s %s speaks of another namespace: %s %v", name, o.GetKind(), o.GetName(), content, err)
			}
		}
	}
}

// What the API server does not read would be applied again and again.
func TestRender_EveryFieldBelongsToItsType(t *testing.T) {
	for name, in := range inputs() {
		for _, o := range rendered(t, in) {
			typed, err := scheme.Scheme.New(o.GroupVersionKind())
			if runtime.IsNotRegisteredError(err) {
				continue // of others
			}
			check.OK(t, err)
			if err := decode(o, typed); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			again := Unstructured(typed)
			if !reflect.DeepEqual(o.Object, again.Object) {
				t.Errorf("%s: %s %s is %v, and as its type %v", name, o.GetKind(), o.GetName(), o.Object, again.Object)
			}
		}
	}
}

func TestRender_FieldsOfOtherWritersAreOmitted(t *testing.T) {
	var search func(value any, path string) string
	search = func(value any, path string) string {
		switch value := value.(type) {
		case nil:
			return path
		case map[string]any:
			for key, inner := range value {
				if found := search(inner, path+"."+key); found != "" {
					return found
				}
			}
		case []any:
			for _, inner := range value {
				if found := search(inner, path+"[]"); found != "" {
					return found
				}
			}
		}
		return ""
	}
	for name, in := range inputs() {
		for _, o := range rendered(t, in) {
			if found := search(o.Object, ""); found != "" || o.Object["status"] != nil || o.GetUID() != "" || o.GetResourceVersion() != "" {
				t.Errorf("%s: %s %s says too much: %s", name, o.GetKind(), o.GetName(), found)
			}
		}
	}
}

func TestRender_SameInputGivesTheSameObjects(t *testing.T) {
	for name, in := range inputs() {
		before := in.Cluster.DeepCopy()
		first := rendered(t, in)
		for range 20 {
			if again := rendered(t, in); !reflect.DeepEqual(first, again) {
				t.Fatalf("%s: first %v, then %v", name, first, again)
			}
		}
		for _, o := range first { // what is done to the objects stays theirs
			for key := range o.Object {
				delete(o.Object, key)
			}
		}
		if len(rendered(t, in)) != len(first) || rendered(t, in)[0].GetName() == "" {
			t.Errorf("%s: the next objects are changed with these", name)
		}
		if !reflect.DeepEqual(before, in.Cluster) {
			t.Errorf("%s: the StorageCluster was changed to %v", name, in.Cluster)
		}
	}
}

func TestRender_ObjectsAreDistinct(t *testing.T) {
	for name, in := range inputs() {
		all := keys(rendered(t, in))
		if unique := slices.Compact(slices.Sorted(slices.Values(all))); len(unique) != len(all) {
			t.Errorf("%s: %v", name, all)
		}
	}
}

func TestRender_DependenciesOfPodsComeFirst(t *testing.T) {
	for name, in := range inputs() {
		all := keys(rendered(t, in))
		if last := all[len(all)-1]; !strings.HasSuffix(last, "holdfast-controller") {
			t.Errorf("%s: the last is %s", name, last)
		}
		if name == "without CSI" {
			continue
		}
		set := slices.Index(all, "DaemonSet holdfast-node")
		for _, needed := range []string{"ServiceAccount holdfast-node", "ConfigMap holdfast-node", "ClusterRoleBinding holdfast-node", "RoleBinding holdfast-node", "CSIDriver csi.holdfast.dev"} {
			if at := slices.Index(all, needed); at < 0 || at > set {
				t.Errorf("%s: %s is not before the DaemonSet: %v", name, needed, all)
			}
		}
		for i, key := range all {
			if strings.HasPrefix(key, "Secret ") && i > set {
				t.Errorf("%s: %s is not before the DaemonSet: %v", name, key, all)
			}
		}
	}
}
