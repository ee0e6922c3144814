package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/operator/render"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// everyField holds a StorageCluster with every field of the spec; the tests of deploy check that.
const everyField = "../../deploy/testdata/everything.yaml"

// notInObjects names the fields that no object shows, or that everyField gives their usual value, and what shows them.
var notInObjects = map[string]string{
	"csi.enabled":     "TestCSI_DisabledRemovesTheNodePluginAndEnabledServesVolumesAgain",
	"controller.kind": "TestController_ClaimsAreBoundWhileItBecomesAStatefulSetAndADeploymentAgain",
	"deletionPolicy":  "TestOrphan_VolumeReturnsWithItsDataAfterTheNextInstallation",
	"images.nfs":      "TestServer_UpgradeChangesItsImage, of operator/nfsserver",
	"monitoring":      "TestKinds_LearnedKindIsUsedAndForgottenKindIsNot, of operator/cluster",
	"secretRef":       "TestAPI_ServesHoldersOfTheSecretsPasswordWithItsCertificate",
}

// What runs is not waited for: the images do not exist, and no node matches. What the objects say is what is to run.
func TestFields_EachOfTheSpecReachesExistingObjects(t *testing.T) {
	hostfs.Long(t)
	a := administer(t)
	secret := credentials()
	secret["tls.crt"], secret["tls.key"] = pair(t, "storage.example")
	a.secret("every-field", secret)
	base := a.get().Spec
	base.SecretRef = &v1beta1.SecretReference{Name: "every-field"}
	before := shownObjects(a).rendered(&base, secret)
	for _, f := range fieldsOf(t) {
		t.Run(f.name, func(t *testing.T) {
			a := &admin{a.In(t), t}
			shown := shownObjects(a)
			spec := base.DeepCopy()
			check.OK(t, json.Unmarshal(f.spec, spec))
			if f.name == "secretRef" {
				return // it is that of the test, throughout
			}
			spec.SecretRef = base.SecretRef
			after := shown.rendered(spec, secret)
			changed := 0
			a.ask(func(is *v1beta1.StorageClusterSpec) { *is = *spec })
			for key, want := range after {
				if !reflect.DeepEqual(want, before[key]) {
					changed++
					a.eventually(key.String()+" to follow", func(ctx context.Context) error { return shown.says(ctx, want) })
				}
			}
			for key, had := range before {
				if after[key] == nil {
					changed++
					a.eventually(key.String()+" to go", func(ctx context.Context) error { return shown.gone(ctx, had) })
				}
			}
			if changed == 0 && notInObjects[f.name] == "" {
				t.Error("no object shows it, and no other test is named")
			}
			t.Logf("%d objects follow", changed)
		})
	}
}

type field struct {
	name string
	spec []byte // with this field alone
}

// fieldsOf takes the spec of everyField apart. The fields of images, csi and controller are looked at one by one.
func fieldsOf(t *testing.T) (fields []field) {
	t.Helper()
	content := check.Got(os.ReadFile(everyField))(t)
	var all struct{ Cluster map[string]any }
	check.OK(t, yaml.Unmarshal(content, &all))
	add := func(name string, spec map[string]any) {
		encoded := check.Got(json.Marshal(spec))(t)
		fields = append(fields, field{name, encoded})
	}
	// A class is of a pool, and an attacher has an image where there is one.
	with := map[string]string{"storageClasses": "pools", "pools": "storageClasses"}
	for _, name := range slices.Sorted(maps.Keys(all.Cluster)) {
		value := all.Cluster[name]
		switch name {
		case "images", "csi", "controller":
			for _, part := range slices.Sorted(maps.Keys(value.(map[string]any))) {
				spec := map[string]any{name: map[string]any{part: value.(map[string]any)[part]}}
				switch part {
				case "csiAttacher":
					spec["csi"] = map[string]any{"attachRequired": true}
				case "ephemeral": // is in the pools
					spec["pools"], spec["storageClasses"] = all.Cluster["pools"], all.Cluster["storageClasses"]
				}
				add(name+"."+part, spec)
			}
		default:
			spec := map[string]any{name: value}
			if other := with[name]; other != "" {
				spec[other] = all.Cluster[other]
				spec["csi"] = map[string]any{"ephemeral": all.Cluster["csi"].(map[string]any)["ephemeral"]}
			}
			add(name, spec)
		}
	}
	return fields
}

type objectKey struct {
	kind            schema.GroupVersionKind
	namespace, name string
}

func (k objectKey) String() string { return k.kind.Kind + " " + k.namespace + "/" + k.name }

// shown compares what is in the cluster with what is rendered.
type shown struct {
	*admin
	mapper meta.RESTMapper
}

func shownObjects(a *admin) *shown {
	return &shown{a, restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(a.Client.Discovery()))}
}

func (s *shown) rendered(spec *v1beta1.StorageClusterSpec, secret map[string]string) map[objectKey]*unstructured.Unstructured {
	s.t.Helper()
	data := map[string][]byte{}
	for key, value := range secret {
		data[key] = []byte(value)
	}
	all := check.Got(render.Objects(render.Input{
		Cluster: &v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: clusterName, UID: s.get().UID}, Spec: *spec}, Namespace: kube.System, Secret: data, Snapshots: true,
		Has: func(kind schema.GroupKind) bool { _, err := s.mapper.RESTMapping(kind); return err == nil },
	}))(s.t)
	objects := map[objectKey]*unstructured.Unstructured{}
	for _, o := range all {
		objects[objectKey{o.GroupVersionKind(), o.GetNamespace(), o.GetName()}] = o
	}
	return objects
}

func (s *shown) source(o *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	kind := o.GroupVersionKind()
	mapping, err := s.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		return s.Dynamic.Resource(mapping.Resource).Namespace(o.GetNamespace()), nil
	}
	return s.Dynamic.Resource(mapping.Resource), nil
}

func (s *shown) says(ctx context.Context, want *unstructured.Unstructured) error {
	source, err := s.source(want)
	if err != nil {
		return err
	}
	is, err := source.Get(ctx, want.GetName(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	if where := lacks(is.Object, want.Object); where != "" {
		return errors.New("it differs in " + where)
	}
	return nil
}

func (s *shown) gone(ctx context.Context, o *unstructured.Unstructured) error {
	source, err := s.source(o)
	if err != nil {
		return err
	}
	if _, err = source.Get(ctx, o.GetName(), metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return nil
	}
	return errors.Join(err, errors.New("it is there"))
}

// lacks says where an object differs from the desired one. What the API server has added does not matter.
func lacks(is, want any) string {
	switch want := want.(type) {
	case nil:
		return ""
	case map[string]any:
		has, _ := is.(map[string]any)
		for key, value := range want {
			if where := lacks(has[key], value); where != "" {
				return key + " " + where
			}
		}
		return ""
	case []any:
		has, _ := is.([]any)
		if len(has) != len(want) {
			return fmt.Sprintf("has %d items, not %d", len(has), len(want))
		}
		for i := range want {
			if where := lacks(has[i], want[i]); where != "" {
				return fmt.Sprint(i, " ", where)
			}
		}
		return ""
	}
	if is == nil && reflect.ValueOf(want).IsZero() || fmt.Sprint(is) == fmt.Sprint(want) {
		return ""
	}
	return fmt.Sprintf("is %v, not %v", is, want)
}
