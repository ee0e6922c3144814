package apply

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

const ownLabel = "example.com/owner"

// startEverywhere starts a Set of objects in all namespaces, with an instance label of its own.
func (r *rig) startEverywhere() *rig {
	r.Helper()
	set := check.Got(New(Config{
		Client: r.client, Resources: r.discover, Kinds: []schema.GroupVersionKind{configMaps, classes}, Everywhere: true, Instance: ownLabel,
		Name: "everywhere", InventoryNamespace: namespace,
		Log: slog.New(slog.NewTextHandler(r.Output(), nil)),
	}))(r)
	check.OK(r, set.Start(r.Context()))
	r.set = set
	return r
}

func elsewhere(namespace, name, value string) *unstructured.Unstructured {
	o := configMap(name, value)
	o.SetNamespace(namespace)
	o.SetLabels(map[string]string{ManagedByLabel: FieldManager, ownLabel: "me"})
	return o
}

func (r *rig) value(namespace, name string) string {
	o, err := r.client.Resource(configMaps.GroupVersion().WithResource("configmaps")).Namespace(namespace).Get(r.Context(), name, metav1.GetOptions{})
	if err != nil {
		return ""
	}
	value, _, _ := unstructured.NestedString(o.Object, "data", "key")
	return value
}

func TestSet_OfAllNamespacesAppliesEachObjectInItsOwnAndPrunesOnlyThoseWithItsLabel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).startEverywhere()
		r.apply(elsewhere("one", "a", "1"), elsewhere("two", "a", "2"))
		if one, two := r.value("one", "a"), r.value("two", "a"); one != "1" || two != "2" {
			t.Errorf("they hold %q and %q", one, two)
		}
		wait.Until(r, "the cache having both", func() bool { return len(r.set.List()) == 2 })
		others := configMap("theirs", "1") // has the instance label of another Set
		check.Got(r.of(configMaps).Create(t.Context(), others, metav1.CreateOptions{}))(t)
		r.seen(others)
		keep := elsewhere("two", "a", "2")
		if out := r.set.Prune(t.Context(), Keeping(list(keep))); out.Err() != nil || len(out.Changed) != 1 || out.Changed[0].Namespace != "one" {
			t.Errorf("pruned was %v, %v", out.Changed, out.Err())
		}
		if one, two := r.value("one", "a"), r.value("two", "a"); one != "" || two != "2" {
			t.Errorf("after that they hold %q and %q", one, two)
		}
	})
}

// Users choose the names, so the first creator of a name keeps it, regardless of the kind.
func TestSet_OfAllNamespacesTakesOverNoForeignObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).startEverywhere()
		theirs := elsewhere("one", "a", "theirs")
		theirs.SetLabels(nil)
		check.Got(r.client.Resource(configMaps.GroupVersion().WithResource("configmaps")).Namespace("one").Create(t.Context(), theirs, metav1.CreateOptions{}))(t)
		out := r.set.Apply(t.Context(), list(elsewhere("one", "a", "ours"), elsewhere("two", "a", "ours")))
		if len(out.Failures) != 1 || !errors.Is(out.Failures[0], ErrForeign) || r.value("one", "a") != "theirs" || r.value("two", "a") != "ours" {
			t.Errorf("it failed with %v, and they hold %q and %q", out.Err(), r.value("one", "a"), r.value("two", "a"))
		}
	})
}
