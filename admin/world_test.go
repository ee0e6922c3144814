package admin

import (
	"context"
	"errors"
	"slices"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func bytesOfSize(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.BinarySI) }

// aVolume is a Ready one of 1Gi on node a.
func aVolume(name string, change ...func(*v1beta1.Volume)) *v1beta1.Volume {
	v := &v1beta1.Volume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{v1beta1.AgentFinalizer}},
		Spec: v1beta1.VolumeSpec{
			Name: name, Node: "a", Pool: "fast", ClaimRef: v1beta1.ReferenceTo("shop/orders"),
			Labels: map[string]string{"csi.storage.k8s.io/pv/name": "pvc-1", "csi.storage.k8s.io/pvc/name": "orders", "csi.storage.k8s.io/pvc/namespace": "shop"},
		},
		Status: v1beta1.VolumeStatus{
			Phase: v1beta1.PhaseReady, Size: bytesOfSize(gib), Used: bytesOfSize(gib / 4), Pool: "fast", Mode: v1beta1.ModeFilesystem, FSType: "ext4",
			Access: &v1beta1.VolumeAccess{Image: "/srv/fast/image"}, CreationTime: new(metav1.NowMicro()),
			Conditions: []metav1.Condition{{Type: v1beta1.ReadyCondition, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonReady}},
		},
	}
	for _, f := range change {
		f(v)
	}
	v.Status.SetColumns()
	return v
}

func (r *rig) volume(name string, change ...func(*v1beta1.Volume)) *v1beta1.Volume {
	r.Helper()
	return wait.Put(r, aVolume(name, change...), r.kinds.Volumes())
}

func (r *rig) snapshot(name string, change ...func(*v1beta1.Snapshot)) {
	r.Helper()
	s := &v1beta1.Snapshot{
		ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{v1beta1.AgentFinalizer}},
		Spec:       v1beta1.SnapshotSpec{Name: name, SourceRef: v1beta1.FromVolume("v"), Node: "a"},
		Status:     v1beta1.SnapshotStatus{Phase: v1beta1.PhaseReady, Size: bytesOfSize(gib), Pool: "fast"},
	}
	for _, f := range change {
		f(s)
	}
	wait.Put(r, s, r.kinds.Snapshots())
}

func inTrash(name, claim string, deleted time.Time) v1beta1.TrashedVolume {
	return v1beta1.TrashedVolume{
		Name: name, Pool: "fast", ClaimRef: v1beta1.ReferenceTo(claim), Size: *bytesOfSize(gib), DeletionTime: metav1.NewTime(deleted), ExpirationTime: metav1.NewTime(deleted.Add(24 * time.Hour)),
	}
}

func (r *rig) node(name string, trash ...v1beta1.TrashedVolume) {
	r.Helper()
	wait.Put(r, &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1beta1.StorageNodeStatus{Trash: trash}}, r.kinds.StorageNodes())
}

func (r *rig) change(node string, f func(*v1beta1.StorageNode)) {
	nodes := r.kinds.StorageNodes()
	wait.Modify(r, nodes.Get, nodes.Update, node, f)
	wait.Modify(r, nodes.Get, nodes.UpdateStatus, node, f)
}

// becomes gives a volume another phase.
func (r *rig) becomes(name string, phase v1beta1.Phase) {
	r.Helper()
	wait.Modify(r, r.kinds.Volumes().Get, r.kinds.Volumes().UpdateStatus, name, func(v *v1beta1.Volume) { v.Status.Phase = phase })
}

// agent acts as the agent: it deletes and restores what is requested, with the trash. With a refusal, restores fail
// with it.
func (r *rig) agent(refusal string) {
	r.Helper()
	seeing(r, r.kinds.Volumes().Watch, func(v *v1beta1.Volume) {
		if v.DeletionTimestamp == nil || !v.DeletionRequested() || len(v.Finalizers) == 0 {
			return
		}
		r.change(v.Spec.Node, func(n *v1beta1.StorageNode) {
			n.Status.Trash = append([]v1beta1.TrashedVolume{inTrash(v.Name, v.Spec.ClaimRef.String(), time.Now().Truncate(time.Second))}, outOf(n.Status.Trash, v.Name)...)
		})
		v.Finalizers = nil
		_, err := r.kinds.Volumes().Update(context.Background(), v, metav1.UpdateOptions{})
		check.Report(r, err)
	})
	seeing(r, r.kinds.Snapshots().Watch, func(s *v1beta1.Snapshot) {
		if s.DeletionTimestamp != nil && s.DeletionRequested() && len(s.Finalizers) > 0 {
			s.Finalizers = nil
			_, err := r.kinds.Snapshots().Update(context.Background(), s, metav1.UpdateOptions{})
			check.Report(r, err)
		}
	})
	seeing(r, r.kinds.StorageNodes().Watch, func(n *v1beta1.StorageNode) {
		if len(n.Spec.Restore) > 0 && n.Spec.Restore[0].Error == "" {
			r.restored(n.Name, n.Spec.Restore[0].Name, refusal)
		}
	})
}

func outOf(trash []v1beta1.TrashedVolume, name string) []v1beta1.TrashedVolume {
	return slices.DeleteFunc(trash, func(t v1beta1.TrashedVolume) bool { return t.Name == name })
}

// unprotectedAgent acts as an agent where the policies are missing: it keeps the data and writes the object again.
func (r *rig) unprotectedAgent() {
	r.Helper()
	ctx := context.Background()
	seeing(r, r.kinds.Volumes().Watch, func(v *v1beta1.Volume) {
		if v.DeletionTimestamp != nil && len(v.Finalizers) > 0 {
			v.Finalizers = nil
			_, err := r.kinds.Volumes().Update(ctx, v, metav1.UpdateOptions{})
			_, again := r.kinds.Volumes().Create(ctx, aVolume(v.Name), metav1.CreateOptions{})
			check.Report(r, errors.Join(err, again))
		}
	})
	seeing(r, r.kinds.Snapshots().Watch, func(s *v1beta1.Snapshot) {
		if s.DeletionTimestamp != nil && len(s.Finalizers) > 0 {
			s.Finalizers = nil
			_, err := r.kinds.Snapshots().Update(ctx, s, metav1.UpdateOptions{})
			_, again := r.kinds.Snapshots().Create(ctx, &v1beta1.Snapshot{ObjectMeta: metav1.ObjectMeta{Name: s.Name}, Spec: s.Spec}, metav1.CreateOptions{})
			check.Report(r, errors.Join(err, again))
		}
	})
}

func (r *rig) restored(node, name, refusal string) {
	if refusal == "" {
		r.volume(name, func(v *v1beta1.Volume) { v.Spec.Node, v.Labels = node, map[string]string{v1beta1.AdoptedLabel: "true"} })
	}
	r.change(node, func(n *v1beta1.StorageNode) {
		if refusal != "" {
			for i := range n.Spec.Restore {
				n.Spec.Restore[i].Error = refusal
			}
			return
		}
		n.Spec.Restore, n.Status.Trash = nil, outOf(n.Status.Trash, name)
	})
}

// binder binds claims to PersistentVolumes whose claimRef names them, as Kubernetes does.
func (r *rig) binder() {
	r.Helper()
	seeing(r, r.core.CoreV1().PersistentVolumeClaims("").Watch, func(c *core.PersistentVolumeClaim) {
		if c.Spec.VolumeName == "" || c.Status.Phase == core.ClaimBound {
			return
		}
		ctx := context.Background()
		pv, err := r.core.CoreV1().PersistentVolumes().Get(ctx, c.Spec.VolumeName, metav1.GetOptions{})
		if err != nil {
			return
		}
		ref := pv.Spec.ClaimRef
		if ref == nil || ref.Namespace != c.Namespace || ref.Name != c.Name || ref.UID != "" && ref.UID != c.UID || whyClaimUnfit(c, pv) != "" {
			return
		}
		ref.UID, pv.Status.Phase, c.Status.Phase = c.UID, core.VolumeBound, core.ClaimBound
		_, bound := r.core.CoreV1().PersistentVolumes().Update(ctx, pv, metav1.UpdateOptions{})
		_, err = r.core.CoreV1().PersistentVolumeClaims(c.Namespace).UpdateStatus(ctx, c, metav1.UpdateOptions{})
		check.Report(r, errors.Join(bound, err))
	})
}
