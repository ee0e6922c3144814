package deploy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestChart_InstallsWhatTheManifestInstalls(t *testing.T) {
	want, err := Read(manifest)
	if err != nil {
		t.Fatal(err)
	}
	// Helm makes no namespace before the objects that are in it; its user does.
	delete(want, "Namespace "+namespace)
	got := render(t, Release{})
	for _, object := range got {
		if object.GetKind() == "CustomResourceDefinition" {
			unstructured.RemoveNestedField(object.Object, "metadata", "annotations", keepAnnotation)
		}
	}
	// The manifest cannot have one beside its kind; the controller makes it.
	cluster := got["StorageCluster holdfast"]
	if spec, ok := lookup(cluster.Object, "spec"); ok { // nor an empty one, which Helm 4 cannot go back to
		t.Errorf("the StorageCluster has the spec %v", spec)
	}
	delete(got, "StorageCluster holdfast")
	for _, difference := range Differences(want, got) {
		t.Error("as the chart has it, " + difference)
	}
}

func TestChart_ValuesBecomeTheStorageCluster(t *testing.T) {
	spec, _ := lookup(render(t, Release{Values: asValues(everything(t))})["StorageCluster holdfast"].Object, "spec")
	if got, want := compact(spec), compact(everything(t)); got != want {
		t.Errorf("it is %s, not %s", got, want)
	}
}

// The operator changes its own workload, and Helm must not change it back.
func TestChart_ControllerEqualsTheOperators(t *testing.T) {
	all := everything(t)
	tries := map[string]map[string]any{
		"nothing": nil, "everything": all,
		"without CSI":   with(all, false, "csi", "enabled"),
		"a StatefulSet": with(all, "StatefulSet", "controller", "kind"),
	}
	for _, field := range slices.Sorted(maps.Keys(all)) {
		tries["only "+field] = map[string]any{field: all[field]}
		if fields, ok := all[field].(map[string]any); ok {
			for inner, value := range fields {
				tries["only "+field+"."+inner] = map[string]any{field: map[string]any{inner: value}}
			}
		}
	}
	compared := 0
	for name, spec := range tries {
		for _, kinds := range [][]string{nil, optionalKinds} {
			if kinds == nil && strings.HasPrefix(name, "only") {
				continue // the kinds make no difference to most
			}
			want, refusal := operate(t, spec, kinds)
			if refusal != "" {
				continue // such as a class whose pool is not there
			}
			got := render(t, Release{Values: asValues(spec), Kinds: kinds})
			notOfTheController := func(key string, _ *unstructured.Unstructured) bool {
				return !strings.HasSuffix(key, "/holdfast-controller") || strings.HasPrefix(key, "Role") || strings.HasPrefix(key, "ServiceAccount")
			}
			maps.DeleteFunc(want, notOfTheController)
			maps.DeleteFunc(got, notOfTheController)
			for _, difference := range Differences(want, got) {
				t.Errorf("%s, %d kinds: as the chart has it, %s", name, len(kinds), difference)
			}
			compared += len(want)
		}
	}
	if compared < 60 {
		t.Errorf("compared were only %d objects of %d", compared, len(tries))
	}
}

func TestChart_StaysInItsNamespace(t *testing.T) {
	for key, object := range render(t, Release{Namespace: "storage", Values: asValues(everything(t)), Kinds: optionalKinds}) {
		// The kinds give it as an example.
		if text := compact(object.Object); strings.Contains(text, namespace) && object.GetKind() != "CustomResourceDefinition" {
			t.Errorf("%s speaks of %s: %s", key, namespace, text)
		}
		switch object.GetKind() {
		case "ServiceAccount", "Role", "RoleBinding", "Deployment":
			if object.GetNamespace() != "storage" {
				t.Errorf("%s is not in namespace storage", key)
			}
		default:
			if object.GetNamespace() != "" {
				t.Errorf("%s has a namespace; a %s has none", key, object.GetKind())
			}
		}
	}
}

const keepAnnotation = "helm.sh/resource-policy"

// Helm would remove the controller first, and the StorageCluster would wait for it for ever.
func TestChart_StorageClusterAndKindsStayWhenTheReleaseIsRemoved(t *testing.T) {
	kept := 0
	for key, object := range render(t, Release{}) {
		keeps := object.GetAnnotations()[keepAnnotation] == "keep"
		if want := object.GetKind() == "CustomResourceDefinition" || object.GetKind() == "StorageCluster"; keeps != want {
			t.Errorf("that %s stays is %t", key, keeps)
		} else if want {
			kept++
		}
	}
	if kept != 8 {
		t.Errorf("%d objects stay", kept)
	}
}

var loadOnce = sync.OnceValues(LoadChart)

// loaded is the chart, which no test changes.
func loaded(t *testing.T) *Chart {
	t.Helper()
	c, err := loadOnce()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func render(t *testing.T, r Release) Objects {
	t.Helper()
	objects, err := loaded(t).Render(r)
	if err != nil {
		t.Fatal(fmt.Errorf("with %v: %w", r.Values, err))
	}
	return objects
}
