package admin

import (
	"context"
	"errors"
	"slices"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/retry"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
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
	v := aVolume(name, change...)
	created, err := r.kinds.Volumes().Create(r.Context(), v, metav1.CreateOptions{})
	r.must(err)
	created.Status = v.Status
	created, err = r.kinds.Volumes().UpdateStatus(r.Context(), created, metav1.UpdateOptions{})
	r.must(err)
	return created
}

func (r *rig) snapshot(name string, change ...func(*v1beta1.Snapshot)) *v1beta1.Snapshot {
	r.Helper()
	s := &v1beta1.Snapshot{
		ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{v1beta1.AgentFinalizer}},
		Spec:       v1beta1.SnapshotSpec{Name: name, SourceRef: v1beta1.FromVolume("v"), Node: "a"},
		Status:     v1beta1.SnapshotStatus{Phase: v1beta1.PhaseReady, Size: bytesOfSize(gib), Pool: "fast"},
	}
	for _, f := range change {
		f(s)
	}
	created, err := r.kinds.Snapshots().Create(r.Context(), s, metav1.CreateOptions{})
	r.must(err)
	created.Status = s.Status
	created, err = r.kinds.Snapshots().UpdateStatus(r.Context(), created, metav1.UpdateOptions{})
	r.must(err)
	return created
}

func inTrash(name, claim string, deleted time.Time) v1beta1.TrashedVolume {
	return v1beta1.TrashedVolume{
		Name: name, Pool: "fast", ClaimRef: v1beta1.ReferenceTo(claim), Size: *bytesOfSize(gib), DeletionTime: metav1.NewTime(deleted), ExpirationTime: metav1.NewTime(deleted.Add(24 * time.Hour)),
	}
}

func (r *rig) node(name string, trash ...v1beta1.TrashedVolume) {
	r.Helper()
	n, err := r.kinds.StorageNodes().Create(r.Context(), &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	r.must(err)
	n.Status.Trash = trash
	_, err = r.kinds.StorageNodes().UpdateStatus(r.Context(), n, metav1.UpdateOptions{})
	r.must(err)
}

func (r *rig) change(node string, f func(*v1beta1.StorageNode)) {
	nodes := r.kinds.StorageNodes()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		n, err := nodes.Get(context.Background(), node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		f(n)
		if n, err = nodes.Update(context.Background(), n, metav1.UpdateOptions{}); err != nil {
			return err
		}
		f(n)
		_, err = nodes.UpdateStatus(context.Background(), n, metav1.UpdateOptions{})
		return err
	})
	check.Report(r, err)
}

// agent acts as the agent: it deletes and restores what is requested, with the trash. With a refusal, restores fail
// with it.
func (r *rig) agent(refusal string) {
	r.Helper()
	seeing(r.T, r.kinds.Volumes().Watch, func(e watch.Event) {
		v, is := e.Object.(*v1beta1.Volume)
		if !is || e.Type != watch.Modified || v.DeletionTimestamp == nil || !v.DeletionRequested() || len(v.Finalizers) == 0 {
			return
		}
		r.change(v.Spec.Node, func(n *v1beta1.StorageNode) {
			n.Status.Trash = append([]v1beta1.TrashedVolume{inTrash(v.Name, v.Spec.ClaimRef.String(), time.Now().Truncate(time.Second))},
				slices.DeleteFunc(n.Status.Trash, func(t v1beta1.TrashedVolume) bool { return t.Name == v.Name })...)
		})
		v.Finalizers = nil
		if _, err := r.kinds.Volumes().Update(context.Background(), v, metav1.UpdateOptions{}); err != nil {
			r.Error(err)
		}
	})
	seeing(r.T, r.kinds.Snapshots().Watch, func(e watch.Event) {
		if s, is := e.Object.(*v1beta1.Snapshot); is && e.Type == watch.Modified && s.DeletionTimestamp != nil && s.DeletionRequested() && len(s.Finalizers) > 0 {
			s.Finalizers = nil
			if _, err := r.kinds.Snapshots().Update(context.Background(), s, metav1.UpdateOptions{}); err != nil {
				r.Error(err)
			}
		}
	})
	seeing(r.T, r.kinds.StorageNodes().Watch, func(e watch.Event) {
		n, is := e.Object.(*v1beta1.StorageNode)
		if !is || len(n.Spec.Restore) == 0 || n.Spec.Restore[0].Error != "" {
			return
		}
		r.restored(n.Name, n.Spec.Restore[0].Name, refusal)
	})
}

// unprotectedAgent acts as an agent where the policies are missing: it keeps the data and writes the object again.
func (r *rig) unprotectedAgent() {
	r.Helper()
	seeing(r.T, r.kinds.Volumes().Watch, func(e watch.Event) {
		v, is := e.Object.(*v1beta1.Volume)
		if !is || e.Type != watch.Modified || v.DeletionTimestamp == nil || len(v.Finalizers) == 0 {
			return
		}
		v.Finalizers = nil
		_, err := r.kinds.Volumes().Update(context.Background(), v, metav1.UpdateOptions{})
		_, again := r.kinds.Volumes().Create(context.Background(), aVolume(v.Name), metav1.CreateOptions{})
		check.Report(r, errors.Join(err, again))
	})
	seeing(r.T, r.kinds.Snapshots().Watch, func(e watch.Event) {
		s, is := e.Object.(*v1beta1.Snapshot)
		if !is || e.Type != watch.Modified || s.DeletionTimestamp == nil || len(s.Finalizers) == 0 {
			return
		}
		s.Finalizers = nil
		_, err := r.kinds.Snapshots().Update(context.Background(), s, metav1.UpdateOptions{})
		_, again := r.kinds.Snapshots().Create(context.Background(), &v1beta1.Snapshot{ObjectMeta: metav1.ObjectMeta{Name: s.Name}, Spec: s.Spec}, metav1.CreateOptions{})
		check.Report(r, errors.Join(err, again))
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
		n.Spec.Restore = nil
		n.Status.Trash = slices.DeleteFunc(n.Status.Trash, func(t v1beta1.TrashedVolume) bool { return t.Name == name })
	})
}

// binder binds claims to PersistentVolumes whose claimRef names them, as Kubernetes does.
func (r *rig) binder() {
	r.Helper()
	claims := r.core.CoreV1().PersistentVolumeClaims("")
	seeing(r.T, claims.Watch, func(e watch.Event) {
		c, is := e.Object.(*core.PersistentVolumeClaim)
		if !is || e.Type == watch.Deleted || c.Spec.VolumeName == "" || c.Status.Phase == core.ClaimBound {
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
		ref.UID, pv.Status.Phase = c.UID, core.VolumeBound
		if _, err := r.core.CoreV1().PersistentVolumes().Update(ctx, pv, metav1.UpdateOptions{}); err != nil {
			r.Error(err)
		}
		c.Status.Phase = core.ClaimBound
		if _, err := r.core.CoreV1().PersistentVolumeClaims(c.Namespace).UpdateStatus(ctx, c, metav1.UpdateOptions{}); err != nil {
			r.Error(err)
		}
	})
}
