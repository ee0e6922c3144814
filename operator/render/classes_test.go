package render

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func classOf(t *testing.T, in Input, name string) *storage.StorageClass {
	t.Helper()
	return must[storage.StorageClass](t, in, "StorageClass", name)
}

func TestClasses_OwnIsTheDefaultUnlessThereIsAnother(t *testing.T) {
	for _, test := range []struct{ spec, other, want string }{
		{"", "", "true"}, {"", "there is", ""}, {"true", "there is", "true"}, {"false", "", ""},
	} {
		in := ask(func(s *v1beta1.StorageClusterSpec) {
			if test.spec != "" {
				s.DefaultClass = new(test.spec == "true")
			}
		})
		in.OtherDefault = test.other != ""
		if mark := classOf(t, in, "holdfast").Annotations[DefaultClass]; mark != test.want {
			t.Errorf("%+v: its mark is %q", test, mark)
		}
	}
	listed := ask(func(s *v1beta1.StorageClusterSpec) {
		s.DefaultClass, s.StorageClasses = new(true), []v1beta1.StorageClassSpec{{Name: "a"}}
	})
	if _, err := Objects(listed); err == nil || !strings.Contains(err.Error(), "spec.defaultClass: true") {
		t.Errorf("with a class that says otherwise: %v", err)
	}
}

func TestClasses_OfSeveralPoolsNameThem(t *testing.T) {
	in := ask(func(s *v1beta1.StorageClusterSpec) {
		s.Pools = []v1beta1.PoolSpec{{Name: "a"}, {Name: "b", Devices: &v1beta1.DeviceSelector{Model: "X", Count: 2}}, {Name: "c", Engine: v1beta1.EngineDirectory}}
		s.StorageClasses = []v1beta1.StorageClassSpec{{Name: "both", Pools: []string{"a", "b"}}}
	})
	if got := classOf(t, in, "both").Parameters["pool"]; got != "a,b" {
		t.Errorf("its pools are %q", got)
	}
	for says, pools := range map[string][]string{
		"spec.storageClasses[0].pools[1]: class both names the pool \"d\": spec.pools has only a, b, c":     {"a", "d"},
		"spec.storageClasses[0].pools[1]: class both has the pools a and c, of which one makes directories": {"a", "c"},
		"spec.storageClasses[0].pools[0]: class both names the pool \"b.2\"":                                {"b.2"},
	} {
		in.Cluster.Spec.StorageClasses[0].Pools = pools
		if _, err := Objects(in); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v", pools, err)
		}
	}
}

func TestSnapshotClasses_AreRenderedWhereTheirKindsExist(t *testing.T) {
	both := []string{"VolumeSnapshotClass", "VolumeGroupSnapshotClass"}
	for _, known := range [][]string{nil, both[:1], both} {
		in := ask(nil)
		in.Has = func(kind schema.GroupKind) bool {
			return slices.Contains(known, kind.Kind) && strings.HasSuffix(kind.Group, "snapshot.storage.k8s.io")
		}
		var made []string
		for _, o := range rendered(t, in) {
			if slices.Contains(both, o.GetKind()) {
				made = append(made, o.GetKind())
				if o.Object["driver"] != "csi.holdfast.dev" || o.Object["deletionPolicy"] != "Delete" || o.GetName() != "holdfast" {
					t.Errorf("it is %v", o.Object)
				}
			}
		}
		if !slices.Equal(made, known) {
			t.Errorf("where %v are known, %v are made", known, made)
		}
	}
}

func TestMetrics_MonitorIsRenderedWhereItsKindExists(t *testing.T) {
	for _, test := range []struct{ known, disabled, want bool }{{true, false, true}, {true, true, false}, {false, false, false}} {
		in := ask(func(s *v1beta1.StorageClusterSpec) { s.Monitoring.Enabled = new(!test.disabled) })
		in.Has = func(kind schema.GroupKind) bool {
			return test.known && kind == schema.GroupKind{Group: "monitoring.coreos.com", Kind: "PodMonitor"}
		}
		monitor := look[map[string]any](t, in, "PodMonitor", "holdfast")
		if (monitor != nil) != test.want {
			t.Errorf("%+v: %v", test, monitor)
		}
		if monitor == nil {
			continue
		}
		selector, _, err := unstructured.NestedStringMap(*monitor, "spec", "selector", "matchLabels")
		check.OK(t, err)
		for name, pod := range map[string]map[string]string{"controller": controllerOf(t, in).Spec.Template.Labels, "node": nodeOf(t, in).Spec.Template.Labels} {
			for key, value := range selector {
				if pod[key] != value || len(selector) == 0 {
					t.Errorf("the %s, with the labels %v, is not found by %v", name, pod, selector)
				}
			}
		}
	}
}

func TestSecret_StaysInSecrets(t *testing.T) {
	for _, o := range rendered(t, everything()) {
		content := check.Got(json.Marshal(o))(t)
		if strings.Contains(string(content), "secret of ") && o.GetKind() != "Secret" {
			t.Errorf("%s %s says %s", o.GetKind(), o.GetName(), content)
		}
	}
}

func TestSecret_MissingKeyIsNamed(t *testing.T) {
	for _, key := range []string{"csiProvisionUsername", "csiNodePublishPassword", "csiControllerPublishUsername", "csiControllerExpandPassword", "tls.crt", "tls.key"} {
		in := everything()
		in.Cluster.Spec.SecretRef.Namespace = "vault"
		delete(in.Secret, key)
		_, err := Objects(in)
		if !errors.Is(err, ErrSecret) || !strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), "vault/access") {
			t.Errorf("without %s: %v", key, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret of ") {
			t.Errorf("the error shows a secret: %v", err)
		}
		in.Secret[key] = []byte{}
		if _, err := Objects(in); err == nil {
			t.Errorf("an empty %s is taken", key)
		}
	}
	in := everything()
	in.Cluster.Spec.SecretRef = nil
	if _, err := Objects(in); err == nil || !strings.Contains(err.Error(), "spec.secretRef") || !strings.Contains(err.Error(), "spec.csi.credentials.provision") {
		t.Errorf("without a secret: %v", err)
	}
}
