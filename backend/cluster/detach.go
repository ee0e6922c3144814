package cluster

import (
	"context"
	"fmt"
	"slices"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/kube"
)

var _ backend.Detacher = (*Backend)(nil)

// CheckDetached reads what decides from the API server, not from a cache. The agent of a node records a volume before the node
// uses it, and removes that when the kernel has it no more. A kubelet reports it before that, but a Node that was deleted and
// registered again has none of what it had. Of a node that is lost both say what it had, and then only its fence says that it
// cannot write any more. A StorageNode that was made again, after the volume was attached, has an empty record until the agent
// has looked what the kernel has: then only the kubelet says it.
func (b *Backend) CheckDetached(ctx context.Context, id backend.ID, node string) error {
	v := kube.InStore[*v1beta1.Volume](b.watches.volumes.GetStore(), string(id))
	if v != nil && v1beta1.CephPoolOf(v.Spec.Node) == "" || b.fencingIsDisabled() {
		return nil
	}
	n, err := b.Client.HoldfastV1beta1().StorageNodes().Get(ctx, node, metav1.GetOptions{})
	lacks := "" // why the StorageNode cannot say what the node has
	switch {
	case apierrors.IsNotFound(err):
		n, lacks = nil, "was deleted, and with it the record of the clients to shut out"
	case err != nil:
		return err
	case n.IsShutOut():
		return nil
	case slices.Contains(n.Status.CephVolumes, string(id)):
		return notDetached(id, n)
	case n.Unreadable() == nil && len(n.Status.CephClients) == 0:
		lacks = "has no record of a client to shut out"
	}
	if v == nil { // where it was is not known, and it is not recorded here
		return nil
	}
	host, err := b.Kubernetes.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && lacks != "": // its StorageNode went when it was shut out, or it has no client
		return nil
	case apierrors.IsNotFound(err):
	case err != nil:
		return err
	case !slices.Contains(host.Status.VolumesInUse, core.UniqueVolumeName("kubernetes.io/csi/"+b.Driver+"^"+string(id))):
		return nil
	}
	if lacks == "" {
		return notDetached(id, n)
	}
	if n != nil {
		since, err := b.attachedSince(ctx, id, node)
		if err != nil || since != nil && n.CreationTimestamp.Before(since) { // its agent would have recorded the volume before its use
			return err
		}
	}
	return fmt.Errorf("%w: volume %s is not detached from node %s, which may still write to it: its kubelet reports the volume as in use, and its StorageNode %s. "+
		"If the node runs, its agent records what it has; if it is off for good, delete the Node %[3]s", backend.ErrUnavailable, id, node, lacks)
}

func notDetached(id backend.ID, n *v1beta1.StorageNode) error {
	why := "is not shut out of its Ceph cluster"
	if c := meta.FindStatusCondition(n.Status.Conditions, v1beta1.FencedCondition); c != nil {
		why += ": " + c.Message
	}
	return fmt.Errorf("%w: volume %s is not detached from node %s, which may still write to it and %s. If the node is off: kubectl taint node %[3]s %[5]s=nodeshutdown:NoExecute",
		backend.ErrUnavailable, id, n.Name, why, core.TaintNodeOutOfService)
}

func (b *Backend) fencingIsDisabled() bool {
	c := v1beta1.Served(kube.Cached(b.Watches.Holdfast.Holdfast().V1beta1().StorageClusters().Lister().List))
	return c != nil && c.Spec.Fencing.Pods == v1beta1.FenceNone
}
