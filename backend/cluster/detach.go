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

// CheckDetached reads what decides from the API server, not from a cache. A kubelet reports a volume as in use before it
// mounts it, and removes that only when it is unmounted; so what it does not report it does not have. Of a node that is lost
// the report says what it had, and then only its fence says that it cannot write any more.
func (b *Backend) CheckDetached(ctx context.Context, id backend.ID, node string) error {
	v, _, _ := b.watches.volumes.GetIndexer().GetByKey(string(id)) // this index has no errors
	if v, is := v.(*v1beta1.Volume); !is || v1beta1.CephPoolOf(v.Spec.Node) == "" || b.fencingIsDisabled() {
		return nil
	}
	n, err := b.Client.HoldfastV1beta1().StorageNodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return kube.IgnoreNotFound(err)
	}
	if n.Unreadable() == nil && len(n.Status.CephClients) == 0 || meta.IsStatusConditionTrue(n.Status.Conditions, v1beta1.FencedCondition) {
		return nil
	}
	host, err := b.Kubernetes.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return err
	case !slices.Contains(host.Status.VolumesInUse, core.UniqueVolumeName("kubernetes.io/csi/"+b.Driver+"^"+string(id))):
		return nil
	}
	why := "is not shut out of its Ceph cluster"
	if c := meta.FindStatusCondition(n.Status.Conditions, v1beta1.FencedCondition); c != nil {
		why += ": " + c.Message
	}
	return fmt.Errorf("%w: volume %s is not detached from node %s, which may still write to it and %s. If the node is off, give it the taint %s",
		backend.ErrUnavailable, id, node, why, core.TaintNodeOutOfService)
}

func (b *Backend) fencingIsDisabled() bool {
	c := v1beta1.Served(kube.Cached(b.Watches.Holdfast.Holdfast().V1beta1().StorageClusters().Lister().List))
	return c != nil && c.Spec.Fencing.Pods == v1beta1.FenceNone
}
