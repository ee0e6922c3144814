package inmemory

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
)

// Real is a cluster without hosts over a real API server. What it makes is removed in the end, whatever became of its agents.
func Real(t *testing.T) *Cluster {
	t.Helper()
	w := over(t, realapi.Config(t))
	w.Until("the kinds being served", func() bool {
		_, err := w.Volumes().List(t.Context(), metav1.ListOptions{})
		_, errSnapshots := w.Snapshots().List(t.Context(), metav1.ListOptions{})
		_, errNodes := w.Nodes().List(t.Context(), metav1.ListOptions{})
		return errors.Join(err, errSnapshots, errNodes) == nil
	})
	t.Cleanup(w.sweep)
	return w
}

func (w *Cluster) sweep() {
	ctx := context.Background()
	free := []byte(`{"metadata":{"finalizers":null}}`)
	volumes, _ := w.Volumes().List(ctx, metav1.ListOptions{})
	for _, v := range volumes.Items {
		_ = w.Volumes().Delete(ctx, v.Name, metav1.DeleteOptions{})
		_, _ = w.Volumes().Patch(ctx, v.Name, types.MergePatchType, free, metav1.PatchOptions{})
	}
	snapshots, _ := w.Snapshots().List(ctx, metav1.ListOptions{})
	for _, s := range snapshots.Items {
		_ = w.Snapshots().Delete(ctx, s.Name, metav1.DeleteOptions{})
		_, _ = w.Snapshots().Patch(ctx, s.Name, types.MergePatchType, free, metav1.PatchOptions{})
	}
	for name := range w.Agents {
		_ = w.Nodes().Delete(ctx, name, metav1.DeleteOptions{})
		_ = w.Theirs.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
		_ = w.Theirs.CoordinationV1().Leases(v1beta1.DefaultNamespace).Delete(ctx, v1beta1.LeasePrefix+name, metav1.DeleteOptions{})
	}
}
