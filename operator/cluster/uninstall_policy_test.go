package cluster

import (
	"errors"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// tryToDelete says what the API server would say of the deletion of a kind, or of the namespace.
func (r *rig) tryToDelete(name string) error {
	r.Helper()
	as := metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
	if name == namespace {
		return r.theirs.CoreV1().Namespaces().Delete(r.Context(), name, as)
	}
	return r.objects.Resource(kube.Definitions).Delete(r.Context(), name, as)
}

func TestUninstall_TheKindsAndTheNamespaceStayWhileThereAreVolumes(t *testing.T) {
	r := running(t, nil)
	r.volume("v1")
	wait.Until(r, "the rule being held", func() bool { return realapi.RefusedBy("holdfast-uninstall", r.tryToDelete("volumes.holdfast.dev")) })
	for _, name := range append(slices.Concat(ownDefinitions, dataDefinitions), namespace) {
		err := r.tryToDelete(name)
		if !realapi.RefusedBy("holdfast-uninstall", err) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		r.says(name, err, "1 volumes and 0 snapshots", name, "kubectl delete storageclusters.holdfast.dev holdfast", "Orphan", "docs/uninstall.md")
	}
	if err := r.tryToDelete("others.example.com"); !apierrors.IsNotFound(err) {
		t.Errorf("another kind: %v", err)
	}

	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.DeletionPolicy = v1beta1.OrphanVolumes })
	if err := r.tryToDelete("volumes.holdfast.dev"); !realapi.RefusedBy("holdfast-uninstall", err) {
		t.Errorf("Orphan alone lets it go: %v", err)
	}
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.DeletionPolicy = "" })
	snapshots := r.ours.HoldfastV1beta1().Snapshots()
	s := &v1beta1.Snapshot{ObjectMeta: metav1.ObjectMeta{Name: "s1"}, Spec: v1beta1.SnapshotSpec{Name: "s1", Node: "node1", SourceRef: v1beta1.FromVolume("v1")}}
	check.Got(snapshots.Create(t.Context(), s, metav1.CreateOptions{}))(t)
	r.noVolume("v1")
	wait.Until(r, "the snapshot alone", func() bool {
		err := r.tryToDelete("snapshots.holdfast.dev")
		return realapi.RefusedBy("holdfast-uninstall", err) && strings.Contains(err.Error(), "0 volumes and 1 snapshots")
	})
	check.OK(t, snapshots.Delete(t.Context(), "s1", metav1.DeleteOptions{}))
	wait.Until(r, "the snapshot having gone, too", func() bool {
		return r.tryToDelete("volumes.holdfast.dev") == nil && r.tryToDelete(namespace) == nil
	})
}

func TestUninstall_ForegroundDeletionIsRefusedAndWhereItIsNotAllComesBack(t *testing.T) {
	r := running(t, nil)
	r.volume("v1")
	clusters := r.ours.HoldfastV1beta1().StorageClusters()
	foreground := func(dry ...string) error {
		return clusters.Delete(t.Context(), "holdfast", metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground), DryRun: dry})
	}
	wait.Until(r, "the rule being held", func() bool { return realapi.RefusedBy("holdfast-cascade", foreground(metav1.DryRunAll)) })
	wait.Until(r, "the kinds being held", func() bool { return realapi.RefusedBy("holdfast-uninstall", r.tryToDelete("nodejobs.holdfast.dev")) })
	r.says("the rule", foreground(), "--cascade=foreground", "docs/uninstall.md")
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationOrphan} {
		if err := clusters.Delete(t.Context(), "holdfast", metav1.DeleteOptions{PropagationPolicy: &policy, DryRun: []string{metav1.DryRunAll}}); err != nil {
			t.Errorf("%s: %v", policy, err)
		}
	}

	before := r.cluster("holdfast")
	wait.Until(r, "the deletion past the rule", func() bool {
		_ = r.theirs.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(t.Context(), "holdfast-cascade", metav1.DeleteOptions{})
		return foreground() == nil
	})
	// The garbage collector is stopped; or it was faster, and the StorageCluster comes back with its own kind.
	wait.Until(r, "the StorageCluster being held by its volume, or coming back", func() bool {
		c := r.cluster("holdfast")
		if c == nil || slices.Contains(c.Finalizers, metav1.FinalizerDeleteDependents) {
			return false
		}
		p := meta.FindStatusCondition(c.Status.Conditions, v1beta1.ProgressingCondition)
		return p != nil && (p.Reason == reasonVolumesExist || c.UID != before.UID && c.DeletionTimestamp == nil)
	})
	wait.Until(r, "all that is needed for the last volume", func() bool {
		driver, err := r.theirs.StorageV1().CSIDrivers().Get(t.Context(), "csi.holdfast.dev", metav1.GetOptions{})
		nodes, err2 := r.theirs.AppsV1().DaemonSets(namespace).Get(t.Context(), v1beta1.NodeName, metav1.GetOptions{})
		v1, err3 := r.ours.HoldfastV1beta1().Volumes().Get(t.Context(), "v1", metav1.GetOptions{})
		return errors.Join(err, err2, err3) == nil && driver.DeletionTimestamp == nil && nodes.DeletionTimestamp == nil && v1.DeletionTimestamp == nil
	})
}
