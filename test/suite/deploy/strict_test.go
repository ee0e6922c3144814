package deploy

import (
	"testing"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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

func TestStrict_EveryInstalledFieldIsKnownToKubernetes(t *testing.T) {
	check := strict(t)
	for name, objects := range installations(t) {
		t.Run(name, func(t *testing.T) { check(t, objects) })
	}
}

// made are the installations, once they are.
var made map[string]Objects

// installations are all ways to install Holdfast that are in the repository, and what the operator makes then.
func installations(t *testing.T) map[string]Objects {
	t.Helper()
	if made == nil {
		made = install(t)
	}
	copies := map[string]Objects{}
	for name, objects := range made {
		copies[name] = Objects{}
		for key, object := range objects {
			copies[name][key] = object.DeepCopy()
		}
	}
	return copies
}

func install(t *testing.T) map[string]Objects {
	t.Helper()
	set := with(everything(t), "StatefulSet", "controller", "kind")
	all := map[string]Objects{
		"chart":                     render(t, Release{}),
		"chart everything":          render(t, Release{Values: asValues(everything(t)), Kinds: optionalKinds}),
		"chart StatefulSet":         render(t, Release{Values: asValues(set), Kinds: optionalKinds}),
		"operator":                  operated(t, nil, nil),
		"operator everything":       operated(t, everything(t), optionalKinds),
		"operator with StatefulSet": operated(t, set, optionalKinds),
		"operator without CSI":      operated(t, with(everything(t), false, "csi", "enabled"), optionalKinds),
	}
	for _, overlay := range overlays {
		all["overlay "+overlay] = built(t, "deploy/overlays/"+overlay)
	}
	objects, err := Read(manifest)
	if err != nil {
		t.Fatal(err)
	}
	all[manifest] = objects
	return all
}

// strict returns a check that each object has the fields of its kind and no others.
func strict(t *testing.T) func(*testing.T, Objects) {
	t.Helper()
	kinds := kinds(t)
	return func(t *testing.T, objects Objects) {
		t.Helper()
		for key, object := range objects {
			if foreign[object.GetKind()] {
				continue
			}
			if err := decode(kinds, object); err != nil {
				t.Errorf("%s: %v", key, err)
			}
		}
	}
}

func decode(kinds *runtime.Scheme, object *unstructured.Unstructured) error {
	content, err := object.MarshalJSON()
	if err != nil {
		return err
	}
	codecs := serializer.NewCodecFactory(kinds, serializer.EnableStrict)
	_, _, err = codecs.UniversalDeserializer().Decode(content, nil, nil)
	return err
}
