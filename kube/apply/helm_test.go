package apply

import (
	"testing"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// helmApplies applies an object as helm upgrade does without --force-conflicts.
func (r *realRig) helmApplies(o *unstructured.Unstructured, args ...any) *unstructured.Unstructured {
	r.Helper()
	o = o.DeepCopy()
	o.SetLabels(map[string]string{ManagedByLabel: helmManager, v1beta1.PartOfLabel: v1beta1.AppName, "app.kubernetes.io/name": "holdfast", "team": "storage"})
	o.SetAnnotations(map[string]string{helmRelease: "holdfast", "meta.helm.sh/release-namespace": namespace})
	withArgs(o, args...)
	applied := check.Got(r.of(o).Apply(r.Context(), o.GetName(), o, metav1.ApplyOptions{FieldManager: "helm"}))(r)
	wait.Until(r, "what Helm has applied", func() bool {
		cached := r.set.watch(RefOf(o).GroupKind).get(RefOf(o).NamespacedName)
		return cached != nil && !older(cached, applied)
	})
	return applied
}

func withArgs(o *unstructured.Unstructured, args ...any) *unstructured.Unstructured {
	o.Object["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)["args"] = args
	return o
}

func argsOf(o *unstructured.Unstructured) any {
	containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	return containers[0].(map[string]any)["args"].([]any)[0]
}

// desired is the object as the operator renders it. Its owner exists, or the garbage collector would delete it.
func (r *realRig) desired(args ...any) *unstructured.Unstructured {
	r.Helper()
	owner := check.Got(r.client.Resource(core.SchemeGroupVersion.WithResource("namespaces")).Get(r.Context(), namespace, metav1.GetOptions{}))(r)
	o := withArgs(deployment(), args...)
	o.SetLabels(map[string]string{ManagedByLabel: FieldManager, v1beta1.PartOfLabel: v1beta1.AppName, "app.kubernetes.io/name": "holdfast"})
	o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: namespace, UID: owner.GetUID()}})
	return o
}

func TestHelm_UpgradeNeverConflictsWithWhatTheOperatorRepairs(t *testing.T) {
	r := newRealRig(t)
	r.helmApplies(deployment(), "a")
	r.apply(r.desired("a"))
	r.helmApplies(deployment(), "b")
	if owners := r.live(deployment()).GetOwnerReferences(); len(owners) != 1 {
		t.Errorf("after an upgrade it has the owners %v", owners)
	}
	r.apply(r.desired("a")) // the StorageCluster follows after the upgrade
	if got := argsOf(r.live(deployment())); got != "a" {
		t.Errorf("drift is not repaired: %v", got)
	}
	r.apply(r.desired("c"))
	r.helmApplies(deployment(), "d")
	r.apply(r.desired("d"))

	check.Got(r.of(deployment()).Patch(t.Context(), "hb-owned", types.MergePatchType, []byte(`{"spec":{"paused":true,"template":{"spec":{"hostIPC":true}}},"metadata":{"labels":{"`+v1beta1.PartOfLabel+`":"x"}}}`),
		metav1.PatchOptions{FieldManager: "kubectl-edit"}))(t)
	check.OK(t, r.set.Apply(t.Context(), list(r.desired("e"))).Err())
	live := r.helmApplies(deployment(), "f")
	if _, paused, _ := unstructured.NestedBool(live.Object, "spec", "paused"); paused || argsOf(live) != "f" {
		t.Errorf("it is %v", live.Object["spec"])
	}
	if live.GetLabels()["team"] != "storage" || live.GetLabels()[ManagedByLabel] != helmManager {
		t.Errorf("it has the labels %v", live.GetLabels())
	}
	for _, f := range live.GetManagedFields() {
		if f.Manager == FieldManager && f.FieldsV1 != nil && len(f.FieldsV1.GetRawString()) > 200 {
			t.Errorf("the operator owns %s", f.FieldsV1.GetRawString())
		}
	}
}

// After the operator has recreated its Deployment, Helm finds its own release in it.
func TestHelm_UpgradeTakesWhatTheOperatorHasRecreated(t *testing.T) {
	r := newRealRig(t)
	r.helmApplies(deployment(), "a")
	r.apply(r.desired("a"))
	check.OK(t, r.of(deployment()).Delete(t.Context(), "hb-owned", metav1.DeleteOptions{}))
	wait.Until(t, "its end", func() bool {
		return r.set.watch(RefOf(deployment()).GroupKind).get(RefOf(deployment()).NamespacedName) == nil
	})
	r.apply(r.desired("b"))
	if live := r.live(deployment()); live.GetAnnotations()[helmRelease] != "holdfast" || live.GetLabels()[ManagedByLabel] != helmManager {
		t.Errorf("it is of no release: %v, %v", live.GetLabels(), live.GetAnnotations())
	}
	r.helmApplies(deployment(), "c")
}

// A release from before the operator left fields to Helm also owns the fields of Helm's entry.
func TestHelm_FieldsThatTheOperatorOwnsFromBeforeAreGivenUp(t *testing.T) {
	r := newRealRig(t)
	r.apply(r.desired("a"))
	o := deployment()
	o.SetAnnotations(map[string]string{helmRelease: "holdfast"})
	o.SetLabels(map[string]string{ManagedByLabel: helmManager})
	check.Got(r.of(o).Apply(t.Context(), o.GetName(), o, metav1.ApplyOptions{FieldManager: "helm", Force: true}))(t)
	r.apply(r.desired("b"))
	r.helmApplies(deployment(), "c")
}

func TestHelm_MarkOwnsNothingThatTheChartRenders(t *testing.T) {
	r := newRealRig(t)
	r.helmApplies(deployment(), "a")
	mark := &unstructured.Unstructured{}
	mark.SetGroupVersionKind(deployments)
	mark.SetNamespace(namespace)
	mark.SetName("hb-owned")
	mark.SetLabels(map[string]string{ManagedByLabel: FieldManager, v1beta1.PartOfLabel: v1beta1.AppName, "not": "rendered"})
	mark.SetOwnerReferences(r.desired().GetOwnerReferences())
	for range 2 {
		check.OK(t, r.set.Mark(t.Context(), list(mark)).Err())
		live := r.helmApplies(deployment(), "b")
		if len(live.GetOwnerReferences()) != 1 || argsOf(live) != "b" || live.GetLabels()[ManagedByLabel] != helmManager || live.GetLabels()["not"] != "rendered" {
			t.Errorf("it is %v", live)
		}
	}
}
