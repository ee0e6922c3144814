package cluster

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/operator/render"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// As a user copies a class: kubectl get -o yaml, another name, kubectl create.
func TestCopies_OfAllOwnedObjectsStayAndAreReported(t *testing.T) {
	r := newRig(t).start()
	r.create("holdfast", func(s *v1beta1.StorageClusterSpec) {
		s.StorageClasses = []v1beta1.StorageClassSpec{{Name: "first"}, {Name: "second"}}
	})
	r.reconciled("holdfast")
	kinds := map[string]*unstructured.Unstructured{}
	for _, o := range r.set.List() {
		if kinds[o.GetKind()] == nil {
			kinds[o.GetKind()] = r.copyOf(o)
		}
	}
	for _, kind := range []string{"ClusterRole", "ConfigMap", "DaemonSet", "Deployment", "ServiceAccount", "StorageClass", "ValidatingAdmissionPolicy"} {
		if kinds[kind] == nil {
			t.Errorf("there is no %s to be copied", kind)
		}
	}
	reported := map[string]bool{}
	wait.Until(r, "the events", func() bool {
		for _, made := range kinds {
			all := check.Got(r.theirs.CoreV1().Events("").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(made.GetUID())}))(t)
			for _, e := range all.Items {
				reported[made.GetKind()] = reported[made.GetKind()] || e.Reason == apply.ReasonStranger
			}
		}
		return len(reported) == len(kinds)
	})
	// Owned objects that are no longer desired are pruned beside them.
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.StorageClasses = s.StorageClasses[:1] })
	second := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass"}}
	second.SetName("second")
	wait.Until(r, "the end of the class", func() bool { return r.get(second) == nil })
	for kind, made := range kinds {
		if live := r.get(made); live == nil || live.GetUID() != made.GetUID() || live.GetDeletionTimestamp() != nil {
			t.Errorf("the copy of a %s is gone", kind)
		}
	}
}

// copyOf makes a copy of an object with all its metadata, but for what must be another.
func (r *rig) copyOf(o *unstructured.Unstructured) *unstructured.Unstructured {
	r.Helper()
	made := r.get(o)
	if made == nil {
		r.Fatalf("%s %s is gone", o.GetKind(), o.GetName())
	}
	made.SetName(o.GetName() + "-copy")
	made.SetUID("")
	made.SetResourceVersion("")
	unstructured.RemoveNestedField(made.Object, "spec", "clusterIP")
	unstructured.RemoveNestedField(made.Object, "spec", "clusterIPs")
	made, err := r.of(o).Create(r.Context(), made, metav1.CreateOptions{})
	if err != nil {
		r.Fatalf("a copy of %s %s: %v", o.GetKind(), o.GetName(), err)
	}
	return made
}

func TestCopies_ForeignObjectsUnderOurNamesStayUnchanged(t *testing.T) {
	r := newRig(t)
	c := r.create("holdfast", nil)
	objects := check.Got(render.Objects(render.Input{Cluster: c, Namespace: namespace, Has: func(kind schema.GroupKind) bool {
		_, err := r.mapper.RESTMapping(kind)
		return err == nil
	}}))(t)
	var theirs []*unstructured.Unstructured
	for _, o := range objects {
		o.SetLabels(map[string]string{"whose": "theirs"})
		o.SetOwnerReferences(nil)
		made, err := r.of(o).Create(t.Context(), o, metav1.CreateOptions{FieldManager: "kubectl-create"})
		if err != nil {
			t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
		t.Cleanup(func() { _ = r.of(made).Delete(background, made.GetName(), metav1.DeleteOptions{}) })
		theirs = append(theirs, made)
	}
	r.start()
	r.condition("holdfast", v1beta1.ProgressingCondition, reasonForeign, "not created by Holdfast")
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.StorageClasses = []v1beta1.StorageClassSpec{{Name: "mine"}} })
	mine := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass"}}
	mine.SetName("mine")
	wait.Until(r, "a class of another name", func() bool { return r.get(mine) != nil })
	for _, o := range theirs {
		live := r.get(o)
		if live == nil || live.GetUID() != o.GetUID() || live.GetLabels()["whose"] != "theirs" || live.GetLabels()[apply.ManagedByLabel] != "" {
			t.Errorf("%s %s was changed or deleted", o.GetKind(), o.GetName())
		}
	}
}
