package nfsserver

import (
	"slices"
	"testing"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func (r *rig) of(o *unstructured.Unstructured) dynamic.ResourceInterface {
	client := dynamic.NewForConfigOrDie(r.config).Resource(resourceOf(o))
	if o.GetNamespace() == "" {
		return client
	}
	return client.Namespace(o.GetNamespace())
}

// partsOf are all objects that are there for a server: its own, its claim, and the account and the rights of all servers.
func (r *rig) partsOf(s *v1beta1.NFSServer) []*unstructured.Unstructured {
	r.Helper()
	parts := r.controller.Servers.List()
	policy := refTo(s, networkPolicy.Group, networkPolicy.Kind)
	for _, ref := range []apply.Ref{refTo(s, "apps", "StatefulSet"), refTo(s, "", "Service"), policy} {
		if r.controller.Servers.Get(ref) == nil {
			r.Errorf("there is no %s to be copied", ref)
		}
	}
	rights := rightsOf(nil, realapi.Namespace, false)
	limits := limitsOf(nil, nil, &v1beta1.NFSSpec{}, realapi.Namespace)
	accountOf := account(s.Namespace)
	claim := part("PersistentVolumeClaim")
	claim.SetNamespace(s.Namespace)
	return slices.Concat(parts, rights, limits, []*unstructured.Unstructured{accountOf, claim})
}

// copied makes a copy of an object with all its metadata, but for what must be another.
func (r *rig) copied(o *unstructured.Unstructured) *unstructured.Unstructured {
	r.Helper()
	made, err := r.of(o).Get(r.Context(), o.GetName(), metav1.GetOptions{})
	check.OK(r, err)
	made.SetName(o.GetName() + "-copy")
	made.SetUID("")
	made.SetResourceVersion("")
	unstructured.RemoveNestedField(made.Object, "spec", "clusterIP")
	unstructured.RemoveNestedField(made.Object, "spec", "clusterIPs")
	if made, err = r.of(o).Create(r.Context(), made, metav1.CreateOptions{}); err != nil {
		r.Fatalf("a copy of %s %s: %v", o.GetKind(), o.GetName(), err)
	}
	r.Cleanup(func() {
		_, _ = r.of(made).Patch(background, made.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		_ = r.of(made).Delete(background, made.GetName(), metav1.DeleteOptions{})
	})
	return made
}

func TestCopies_OfAllObjectsOfAServerStayAndAreReported(t *testing.T) {
	r := newRig(t)
	s := r.create("data", func(s *v1beta1.NFSServerSpec) { s.ReclaimPolicy = core.PersistentVolumeReclaimDelete })
	r.serve("data")
	var copies []*unstructured.Unstructured
	for _, o := range r.partsOf(s) {
		copies = append(copies, r.copied(o))
	}
	stay := func(when string) {
		t.Helper()
		for _, o := range copies {
			live, err := r.of(o).Get(t.Context(), o.GetName(), metav1.GetOptions{})
			if err != nil || live.GetUID() != o.GetUID() || live.GetDeletionTimestamp() != nil {
				t.Errorf("%s the copy of a %s is gone: %v", when, o.GetKind(), err)
			}
		}
	}
	for _, o := range copies {
		if o.GetLabels()[Label] == "" || o.GetKind() == "PersistentVolumeClaim" { // what is pruned for no server
			continue
		}
		wait.Until(r, "the event about a copy of "+o.GetKind(), func() bool {
			all, err := r.theirs.CoreV1().Events("").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(o.GetUID())})
			return err == nil && slices.ContainsFunc(all.Items, func(e core.Event) bool { return e.Reason == apply.ReasonStranger })
		})
	}
	r.change("data", func(s *v1beta1.NFSServerSpec) { s.MaxExports = 7 })
	r.argument("data", "--max-exports=7")
	r.changeCluster(func(s *v1beta1.StorageClusterSpec) { s.NFS.NetworkPolicies = new(false) })
	wait.Until(r, "the end of the objects that are no longer desired", func() bool {
		return r.controller.Servers.Get(refTo(s, networkPolicy.Group, networkPolicy.Kind)) == nil
	})
	stay("when something was pruned")
	r.stop()
	r.start()
	r.change("data", func(s *v1beta1.NFSServerSpec) { s.MaxExports = 8 })
	r.argument("data", "--max-exports=8")
	stay("for another controller")
	// Kubernetes deletes with the server what has it as an owner. The operator deletes nothing by its labels alone.
	for _, o := range copies {
		check.Got(r.of(o).Patch(t.Context(), o.GetName(), types.MergePatchType, []byte(`{"metadata":{"ownerReferences":null}}`), metav1.PatchOptions{}))(t)
	}
	r.delete("data")
	r.gone("data")
	stay("without the server")
}
