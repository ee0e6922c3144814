package nfsserver

import (
	"context"
	"fmt"
	"slices"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
)

// remains is what is left of a server that is being removed. All but parts is live.
type remains struct {
	pod      bool                         // it may still create volumes
	inUse    bool                         // there are volumes or snapshots on it; read after pod
	promised int64                        // bytes that its last report has for volumes and snapshots
	parts    []*unstructured.Unstructured // the objects that were made for it
}

// isRemovable says whether a server should be removed with all its objects. If its kind is being deleted, the server
// will be recreated, and if other kinds are missing, it is unknown what it holds.
func (r *round) isRemovable() bool {
	return r.server.DeletionTimestamp != nil && slices.Contains(r.server.Finalizers, v1beta1.OperatorFinalizer) && !r.incomplete
}

// observeRemoval reads from the API server, since a volume may have been created a moment ago. It reads the pod before
// the volumes: without a pod, no more volumes can appear.
func (c *Controller) observeRemoval(ctx context.Context, s *v1beta1.NFSServer, o *observed) error {
	o.remains.parts = slices.DeleteFunc(c.Servers.List(), func(p *unstructured.Unstructured) bool {
		return p.GetNamespace() != s.Namespace || p.GetLabels()[Label] != s.Name
	})
	pods, err := c.Kubernetes.CoreV1().Pods(s.Namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.SelectorFromSet(selector(s)).String()})
	if err != nil {
		return err
	}
	o.remains.pod = slices.ContainsFunc(pods.Items, func(p core.Pod) bool { return isPodOf(s, p.Name) })
	one := metav1.ListOptions{Limit: 1, FieldSelector: fields.OneTermEqualSelector("spec.node", s.NodeName()).String()}
	volumes, err := c.Client.HoldfastV1beta1().Volumes().List(ctx, one)
	if err != nil {
		return err
	}
	snapshots, err := c.Client.HoldfastV1beta1().Snapshots().List(ctx, one)
	if err != nil {
		return err
	}
	if o.remains.inUse = len(volumes.Items)+len(snapshots.Items) > 0; o.remains.inUse {
		return nil
	}
	// That there are no objects of volumes proves nothing: the server writes that of the external provisioner when it has
	// created the volume, and all again after they, or their kind, were deleted.
	report, err := kube.Live(ctx, c.Client.HoldfastV1beta1().StorageNodes().Get, s.NodeName())
	if err != nil {
		return err
	}
	if report != nil {
		o.remains.promised = promisedBeyondTrash(&report.Status)
	}
	onIt, data, err := c.findVolumes(ctx, s, o.service)
	if err != nil {
		return err
	}
	if o.remains.inUse, o.data = onIt || o.remains.promised > 0, data; o.remains.inUse || claimName(s) == "" {
		return nil
	}
	o.claim, err = c.liveClaim(ctx, s)
	return err
}

// promisedBeyondTrash returns how many bytes of its storage a server has last reported as promised to volumes and snapshots.
// It leaves out the deleted volumes: they do not delay the end of a server. Of a list that was cut it is not known how much
// they are.
func promisedBeyondTrash(s *v1beta1.StorageNodeStatus) (bytes int64) {
	if len(s.Trash) >= v1beta1.MostTrash {
		return 0
	}
	for i := range s.Pools {
		bytes += s.Pools[i].Promised.Value()
	}
	for i := range s.Trash {
		bytes -= s.Trash[i].Size.Value()
	}
	return max(0, bytes)
}

// remove plans the removal of a server, unless volumes are on it or the cluster is paused. The pod is deleted first: after
// that, no volume can be created, and no one writes the StorageNode again.
func (r *round) remove() {
	switch {
	case !slices.Contains(r.server.Finalizers, v1beta1.OperatorFinalizer): // nothing was created for it
		r.silent = true
		return
	case !r.isRemovable():
		r.silent, r.again = true, kube.LookAgain
		return
	case r.remains.inUse:
		r.maintain()
		if r.isPaused() || r.volumes+r.snapshots == 0 { // the caches are behind
			r.again = kube.LookAgain
		}
		return
	case r.isPaused(): // the StorageCluster is watched
		return
	}
	if r.statefulSet != nil {
		r.delete = append(r.delete, r.statefulSet)
	}
	parts := r.remains.parts
	switch {
	case r.remains.pod || slices.ContainsFunc(parts, func(o *unstructured.Unstructured) bool { return o.GetKind() == "StatefulSet" }):
		r.leaving = "its pod to end"
	case len(parts) > 0:
		r.delete = append(r.delete, slices.DeleteFunc(slices.Clone(parts), func(o *unstructured.Unstructured) bool { return o.GetDeletionTimestamp() != nil })...)
		r.leaving = fmt.Sprintf("%d objects to be deleted", len(parts))
	default:
		r.removeClaim()
		r.finish = r.leaving == ""
	}
	if r.leaving != "" {
		r.again = kube.LookAgain
	}
	r.silent = r.finish
}

// removeClaim plans for the data: the claim that was created for a server is deleted with it if reclaimPolicy says so.
func (r *round) removeClaim() {
	s, claim := r.server, r.claim
	if r.data != nil {
		r.patchVolume = release(r.data, claim, s)
	}
	if claim == nil || !makesClaim(s) || s.Spec.ReclaimPolicy != core.PersistentVolumeReclaimDelete || !isOurs(claim, s) {
		return
	}
	r.leaving = "claim " + claim.Name + " to go"
	if claim.DeletionTimestamp == nil {
		r.deleteClaim = claim
	}
}

// applyRemoval carries out the plan of a removal. It is idempotent.
func (c *Controller) applyRemoval(ctx context.Context, r *round) error {
	for _, o := range r.delete {
		if err := c.Servers.Delete(ctx, o); err != nil {
			return fmt.Errorf("deleting %s: %w", apply.RefOf(o), err)
		}
	}
	if p := r.patchVolume; p != nil {
		if ref := p.pv.Spec.ClaimRef; ref != nil {
			c.kept.Delete(ref.UID)
		}
		if err := c.patchVolume(ctx, r.server, p); err != nil {
			return err
		}
	}
	if claim := r.deleteClaim; claim != nil {
		if err := kube.DeleteExactly(ctx, c.Kubernetes.CoreV1().PersistentVolumeClaims(claim.Namespace).Delete, claim); err != nil {
			return err
		}
	}
	if !r.finish {
		return nil
	}
	if err := c.removeTraces(ctx, r.server); err != nil {
		return err
	}
	if err := c.revoke(ctx, keyOf(r.server), true); err != nil {
		return err
	}
	if err := c.written.RemoveFinalizer(ctx, r.server, v1beta1.OperatorFinalizer); err != nil {
		return kube.IgnoreNotFound(err)
	}
	c.Log.Info("an NFS server was removed", "namespace", r.server.Namespace, "name", r.server.Name)
	return nil
}

// removeTraces removes the StorageNode of the server, and its Leases.
func (c *Controller) removeTraces(ctx context.Context, s *v1beta1.NFSServer) error {
	if err := kube.IgnoreNotFound(c.Client.HoldfastV1beta1().StorageNodes().Delete(ctx, s.NodeName(), metav1.DeleteOptions{})); err != nil {
		return fmt.Errorf("deleting StorageNode %s: %w", s.NodeName(), err)
	}
	for _, name := range leasesOf(s) {
		if err := kube.IgnoreNotFound(c.Kubernetes.CoordinationV1().Leases(c.Namespace).Delete(ctx, name, metav1.DeleteOptions{})); err != nil {
			return fmt.Errorf("deleting Lease %s: %w", name, err)
		}
	}
	return nil
}
