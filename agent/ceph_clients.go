package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

// CephHost is what is known of the clients of Ceph clusters that the kernel of a node has.
type CephHost interface {
	// Gone says whether the kernel has a client no more. In doubt it has.
	Gone(context.Context, v1beta1.CephClient) (bool, error)
	// Release removes what is left of a client that was shut out.
	Release(context.Context, v1beta1.CephClient) error
}

// cephClients is the record of the clients of this node's kernel. It is written before a client is used: when the node is
// lost, its clients are shut out by it.
//
// It is in the status of the StorageNode, but not in what the publisher applies: its writes fail if the object has changed,
// so that a client is recorded before the node is to be shut out, or not at all.
type cephClients struct {
	mu       sync.Mutex           // held while the record is written
	recorded []v1beta1.CephClient // what the object has, as far as this process has written it
	dirty    chan struct{}        // holds a token when there may be something to do
}

// mostCephClients is the maximum of the schema.
const mostCephClients = 256

// RecordCephClient records a client before it is used. It fails while the node is shut out.
func (a *Agent) RecordCephClient(ctx context.Context, c v1beta1.CephClient) error {
	a.ceph.mu.Lock()
	defer a.ceph.mu.Unlock()
	n := a.nodeObject()
	if n != nil && n.Spec.Fence == nil && slices.Contains(a.ceph.recorded, c) && slices.Contains(n.Status.CephClients, c) {
		return nil
	}
	return a.editCephClients(ctx, func(n *v1beta1.StorageNode) ([]v1beta1.CephClient, error) {
		all := n.Status.CephClients
		switch {
		case n.Spec.Fence != nil:
			return nil, fmt.Errorf("%w: node %s is shut out of all Ceph clusters since %s (%s), and is let in again when its kernel has none of the clients from before; kubectl describe storagenode %[2]s says which it has",
				backend.ErrUnavailable, a.Node, n.Spec.Fence.RequestedAt.UTC().Format(time.RFC3339), n.Spec.Fence.Reason)
		case slices.Contains(all, c):
			return all, nil
		case len(all) >= mostCephClients:
			return nil, fmt.Errorf("%w: node %s has %d clients of Ceph clusters, and no more can be recorded: unmount volumes", backend.ErrPrecondition, a.Node, len(all))
		}
		all = slices.DeleteFunc(slices.Clone(all), c.Is) // one whose address was not known
		return append(all, c), nil
	})
}

// editCephClients writes what change makes of the record. The caller has the lock.
func (a *Agent) editCephClients(ctx context.Context, change func(*v1beta1.StorageNode) ([]v1beta1.CephClient, error)) error {
	nodes := a.Client.HoldfastV1beta1().StorageNodes()
	for {
		n, err := nodes.Get(ctx, a.Node, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("%w: the clients of Ceph clusters of node %s: %w", backend.ErrUnavailable, a.Node, err)
		}
		next, err := change(n)
		if err != nil {
			return err
		}
		if !slices.Equal(next, n.Status.CephClients) {
			if next == nil {
				next = []v1beta1.CephClient{}
			}
			patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": n.ResourceVersion}, "status": map[string]any{"cephClients": next}})
			if err != nil {
				return err
			}
			_, err = nodes.Patch(ctx, a.Node, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager}, "status")
			if apierrors.IsConflict(err) && ctx.Err() == nil {
				continue // it is published at the same time, or the node is to be shut out
			}
			if err != nil {
				return fmt.Errorf("%w: recording the clients of Ceph clusters of node %s: %w", backend.ErrUnavailable, a.Node, err)
			}
		}
		a.ceph.recorded = next
		return nil
	}
}

// keepCephClients removes clients from the record that the kernel has no more, and releases those that are shut out.
func (a *Agent) keepCephClients(ctx context.Context) {
	tick := time.NewTicker(a.SurveyEvery)
	defer tick.Stop()
	for {
		if err := a.pruneCephClients(ctx); err != nil && ctx.Err() == nil {
			a.log.Warn("the record of this node's clients of Ceph clusters could not be brought up to date; trying again", "error", err)
		}
		wait := tick.C
		if n := a.nodeObject(); n != nil && n.Spec.Fence != nil {
			wait = time.After(min(a.SurveyEvery, fencedLook))
		}
		select {
		case <-ctx.Done():
			return
		case <-a.ceph.dirty:
		case <-wait:
		}
	}
}

// fencedLook is how often a node that is shut out looks which clients it still has: the end of a mount is no event.
const fencedLook = 5 * time.Second

func (a *Agent) pruneCephClients(ctx context.Context) error {
	a.ceph.mu.Lock()
	defer a.ceph.mu.Unlock()
	n := a.nodeObject()
	if n == nil || n.Unreadable() != nil {
		return nil
	}
	known := n.Status.CephClients
	for _, c := range a.ceph.recorded { // the object may have been deleted since
		if !slices.ContainsFunc(known, c.Is) {
			known = append(slices.Clone(known), c)
		}
	}
	var gone []v1beta1.CephClient
	var errs []error
	isFenced := n.Spec.Fence != nil && meta.IsStatusConditionTrue(n.Status.Conditions, v1beta1.FencedCondition)
	for _, c := range known {
		if isFenced {
			errs = append(errs, a.CephHost.Release(ctx, c))
		}
		is, err := a.CephHost.Gone(ctx, c)
		errs = append(errs, err)
		if is {
			gone = append(gone, c)
		}
	}
	if len(known) > 0 {
		errs = append(errs, a.editCephClients(ctx, func(n *v1beta1.StorageNode) ([]v1beta1.CephClient, error) {
			var all []v1beta1.CephClient
			for _, c := range slices.Concat(n.Status.CephClients, known) {
				if !slices.Contains(gone, c) && !slices.ContainsFunc(all, c.Is) {
					all = append(all, c)
				}
			}
			return all, nil
		}))
	}
	return errors.Join(errs...)
}

// lookAtCephClients is called when volumes or requests have changed.
func (a *Agent) lookAtCephClients() {
	select {
	case a.ceph.dirty <- struct{}{}:
	default:
	}
}
