package deploy

import (
	"testing"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
)

// foreign are kinds that Kubernetes itself does not have. Only a cluster shows that the snapshot classes are valid.
var foreign = map[string]bool{"VolumeSnapshotClass": true, "VolumeGroupSnapshotClass": true, "PodMonitor": true, "StorageCluster": true}

// kinds are the types of Kubernetes.
func kinds(t *testing.T) *runtime.Scheme {
	t.Helper()
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensions.AddToScheme} {
		if err := add(kinds); err != nil {
			t.Fatal(err)
		}
	}
	return kinds
}

// strict checks that each object has the fields of its kind and no others.
func strict(t *testing.T, objects Objects) {
	t.Helper()
	decoder := serializer.NewCodecFactory(kinds(t), serializer.EnableStrict).UniversalDeserializer()
	for key, object := range objects {
		if foreign[object.GetKind()] {
			continue
		}
		if _, _, err := decoder.Decode(must(object.MarshalJSON())(t), nil, nil); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
}

func TestStrict_EveryInstalledFieldIsKnownToKubernetes(t *testing.T) {
	for name, objects := range installations(t) {
		t.Run(name, func(t *testing.T) { strict(t, objects) })
	}
}
