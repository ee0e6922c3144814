package agent

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

// lookAtClients finds out, once each time that a volume is attached to a node, whether a client that this node has not recorded has it
// open: one by hand, of another cluster, or of a node whose record was lost. It fails, to look again, until that has gone.
func (a *Agent) lookAtClients(ctx context.Context, o *v1beta1.Volume, v *backend.Volume) (*v1beta1.VolumeAttached, error) {
	node, seen := o.Annotations[v1beta1.AttachedAnnotation], o.SeenAttached()
	if v == nil || a.watched == nil || node == "" || seen != nil && seen.Client == "" {
		return seen, nil
	}
	n, err := a.Client.HoldfastV1beta1().StorageNodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return seen, fmt.Errorf("which clients of Ceph node %s has cannot be read: %w", node, err)
	}
	var known []string
	for _, c := range n.Status.CephClients {
		known = append(known, string(c.Address))
	}
	client, err := a.watched.ClientOf(ctx, backend.ID(o.Name), known)
	if err != nil {
		return seen, err
	}
	seen = &v1beta1.VolumeAttached{Node: node, Since: o.Annotations[v1beta1.AttachedSinceAnnotation], Client: client}
	if client != "" {
		err = fmt.Errorf("volume %s is attached to node %s, and a client at %s, which is none of that node, has it open", o.Name, node, client)
	}
	return seen, err
}
