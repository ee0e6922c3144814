package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/kube"
)

// CephHost is what is known of the clients of Ceph clusters that the kernel of a node has.
type CephHost interface {
	// Gone says whether the kernel has a client no more. In doubt it has.
	Gone(context.Context, v1beta1.CephClient) (bool, error)
	// Release removes what is left of a client that was shut out.
	Release(context.Context, v1beta1.CephClient) error
	// InUse returns which volumes the kernel has, and the clients of those that are not recorded.
	InUse(ctx context.Context, recorded []string) (has []string, clients []v1beta1.CephClient, err error)
}

// cephClients is the record of the clients of this node's kernel, and of the volumes that it has through them. It is written
// before they are used: when the node is lost, its clients are shut out by it, and until then no other node gets the volumes.
//
// It is in the status of the StorageNode, but not in what the publisher applies: its writes fail if the object has changed,
// so that a client is recorded before the node is to be shut out, or not at all.
type cephClients struct {
	mu       sync.Mutex    // held while the record is written
	recorded cephRecord    // what the object has, as far as this process has written it
	complete types.UID     // the object that has all that the kernel had before this process
	partial  bool          // not all mounts have answered which client they have
	dirty    chan struct{} // holds a token when there may be something to do
}

func (c *cephClients) setComplete(object types.UID) {
	if !c.partial {
		c.complete = object
	}
}

type cephRecord struct {
	clients []v1beta1.CephClient
	volumes []string
}

func recordIn(n *v1beta1.StorageNode) cephRecord {
	return cephRecord{n.Status.CephClients, n.Status.CephVolumes}
}

func (r cephRecord) has(c v1beta1.CephClient, volume string) bool {
	return slices.Contains(r.clients, c) && slices.Contains(r.volumes, volume)
}

// These are the maxima of the schema.
const mostCephClients, mostCephVolumes = 256, 4096

// RecordCephClient records a client, and the volume that it is for, before they are used. It fails while the node is shut
// out.
func (a *Agent) RecordCephClient(ctx context.Context, id backend.ID, c v1beta1.CephClient) error {
	a.ceph.mu.Lock()
	defer a.ceph.mu.Unlock()
	volume := string(id)
	n := a.nodeObject()
	if n != nil && n.Spec.Fence == nil && n.UID == a.ceph.complete && a.ceph.recorded.has(c, volume) && recordIn(n).has(c, volume) {
		return nil
	}
	return a.editCephRecord(ctx, func(n *v1beta1.StorageNode) (cephRecord, error) {
		next := recordIn(n)
		if n.Spec.Fence == nil && next.has(c, volume) {
			return next, nil // and so none is added, whatever else the node may have
		}
		// With this client alone the node would count as shut out while it writes through others.
		if n.UID != a.ceph.complete {
			var err error
			if next, err = a.recordFor(ctx, n); err != nil {
				return next, fmt.Errorf("%w: which volumes in Ceph clusters node %s has in use is not known, so none is added: %w", backend.ErrUnavailable, a.Node, err)
			}
		}
		if n.Spec.Fence != nil {
			return next, shutOut(n)
		}
		if !slices.Contains(next.clients, c) {
			next.clients = append(slices.DeleteFunc(slices.Clone(next.clients), c.Is), c) // not one whose address was not known
		}
		if !slices.Contains(next.volumes, volume) {
			next.volumes = slices.Sorted(slices.Values(append(slices.Clone(next.volumes), volume))) // as pruneCephClients keeps them
		}
		if len(next.clients) > mostCephClients || len(next.volumes) > mostCephVolumes {
			return next, fmt.Errorf("%w: node %s has %d clients of Ceph clusters and %d volumes in them, and no more can be recorded: unmount volumes",
				backend.ErrPrecondition, a.Node, len(n.Status.CephClients), len(n.Status.CephVolumes))
		}
		return next, nil
	})
}

// CephShutOut fails while the node is to be shut out of all Ceph clusters; dead says that it was. It reads the object from the API
// server: a node that was cut off has an older one in its cache when it is back.
func (a *Agent) CephShutOut(ctx context.Context) (dead bool, err error) {
	n, err := a.Client.HoldfastV1beta1().StorageNodes().Get(ctx, a.Node, metav1.GetOptions{})
	switch {
	case err != nil:
		return false, fmt.Errorf("%w: whether node %s is shut out of all Ceph clusters: %w", backend.ErrUnavailable, a.Node, err)
	case n.Spec.Fence != nil:
		return n.WasShutOut(), shutOut(n)
	}
	return false, nil
}

func shutOut(n *v1beta1.StorageNode) error {
	return fmt.Errorf("%w: node %s is shut out of all Ceph clusters since %s (%s), and is let in again when its kernel has none "+
		"of the clients from before; kubectl describe storagenodes.holdfast.dev %[2]s says which it has",
		backend.ErrUnavailable, n.Name, n.Spec.Fence.RequestedAt.UTC().Format(time.RFC3339), n.Spec.Fence.Reason)
}

// editCephRecord writes what change makes of the record. The caller has the lock.
func (a *Agent) editCephRecord(ctx context.Context, change func(*v1beta1.StorageNode) (cephRecord, error)) error {
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
		if was := recordIn(n); !slices.Equal(next.clients, was.clients) || !slices.Equal(next.volumes, was.volumes) {
			_, err := kube.MergePatch(ctx, nodes.Patch, a.Node, map[string]any{
				"metadata": map[string]any{"resourceVersion": n.ResourceVersion},
				"status":   map[string]any{"cephClients": slices.Concat([]v1beta1.CephClient{}, next.clients), "cephVolumes": slices.Concat([]string{}, next.volumes)},
			}, fieldManager, "status")
			if apierrors.IsConflict(err) && ctx.Err() == nil {
				continue // it is published at the same time, or the node is to be shut out
			}
			if err != nil {
				return fmt.Errorf("%w: recording the clients of Ceph clusters of node %s: %w", backend.ErrUnavailable, a.Node, err)
			}
		}
		a.ceph.recorded = next
		a.ceph.setComplete(n.UID)
		return nil
	}
}

// keepCephClients removes from the record what the kernel has no more, and releases those that are shut out.
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
	known, err := a.recordFor(ctx, n)
	if err != nil {
		return err
	}
	var gone []v1beta1.CephClient
	var errs []error
	for _, c := range known.clients {
		if n.WasShutOut() && slices.Contains(n.Status.CephClients, c) { // and not one that was recorded since it is let in
			errs = append(errs, a.CephHost.Release(ctx, c))
		}
		is, err := a.CephHost.Gone(ctx, c)
		errs = append(errs, err)
		if is {
			gone = append(gone, c)
		}
	}
	if len(known.clients)+len(known.volumes)+len(n.Status.CephVolumes) > 0 {
		errs = append(errs, a.editCephRecord(ctx, func(n *v1beta1.StorageNode) (cephRecord, error) {
			clients := slices.Concat(n.Status.CephClients, known.clients)
			if n.Spec.Fence != nil && n.UID == a.ceph.complete { // any other was refused, and its mount goes
				clients = n.Status.CephClients
			}
			return cephRecord{without(clients, gone), known.volumes}, nil
		}))
	} else {
		a.ceph.setComplete(n.UID)
	}
	return errors.Join(errs...)
}

// inUseLimit is how long mounts may take to say which client they have.
const inUseLimit = 5 * time.Second

// recordFor returns the volumes that the kernel has, and all clients that it may have. The object may have been deleted since
// they were recorded, perhaps while no agent ran. The caller has the lock.
func (a *Agent) recordFor(ctx context.Context, n *v1beta1.StorageNode) (r cephRecord, err error) {
	known := recordIn(n)
	look := func(recorded []string) ([]string, []v1beta1.CephClient, error) {
		ctx, cancel := context.WithTimeout(ctx, inUseLimit)
		defer cancel()
		return a.CephHost.InUse(ctx, recorded)
	}
	var volumes []string
	var inUse []v1beta1.CephClient
	a.ceph.partial = false
	if n.UID != a.ceph.complete { // one that was put back has volumes, and the clients that they had then: all mounts are asked
		volumes, inUse, err = look(nil)
		a.ceph.partial = err != nil
	}
	if n.UID == a.ceph.complete || a.ceph.partial { // what is recorded may be in a cluster that is dead
		volumes, inUse, err = look(slices.Concat(known.volumes, a.ceph.recorded.volumes))
	}
	if err != nil {
		return known, err
	}
	for _, c := range slices.Concat(a.ceph.recorded.clients, inUse) {
		if !slices.ContainsFunc(known.clients, c.Is) {
			known.clients = append(slices.Clone(known.clients), c)
		}
	}
	known.volumes = slices.Compact(slices.Sorted(slices.Values(volumes)))
	return known, nil
}

// without returns each client once, but for those that are gone.
func without(all, gone []v1beta1.CephClient) (left []v1beta1.CephClient) {
	for _, c := range all {
		if !slices.Contains(gone, c) && !slices.ContainsFunc(left, c.Is) {
			left = append(left, c)
		}
	}
	return left
}

// lookAtCephClients is called when volumes or requests have changed.
func (a *Agent) lookAtCephClients() { kube.Notify(a.ceph.dirty) }
