package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	watch "github.com/holdfast-storage/holdfast/api/client/informers/api/v1beta1"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

// The agent of a pool in a Ceph cluster makes a user for each node that reports a public key, and puts the user's key,
// encrypted to that, into status.nodeUsers of its StorageNode. A user is removed when the clients of its node were shut out for
// good, so that who has the key does not come back: the node gets another one when it is let in again. Before that it stays,
// whatever is deleted: the kernel of a node that runs goes on only as long as its user is there.

const (
	// nodeUserStays is how many surveys a user outlives the StorageNode of its node, which the agent of a node that runs makes
	// again: an hour.
	nodeUserStays = 60
	// nodeUserLook is after how many it is looked whether a user is still there, and has the caps that it needs.
	nodeUserLook = 10
	// mostNodeUsers is the maximum of the schema.
	mostNodeUsers = 1024
)

// nodeUsers is what this process knows of users, by node.
type nodeUsers struct {
	seen    map[string]time.Time // when each was looked at last
	missed  map[string]time.Time // since when its StorageNode is not there
	removed map[string]bool
}

func (a *Agent) nodeUserListener() watch.StorageNodeHandlerFuncs {
	return watch.StorageNodeHandlerFuncs{
		AddFunc: func(*v1beta1.StorageNode) { a.lookAtCephClients() },
		UpdateFunc: func(old, n *v1beta1.StorageNode) {
			if old.Status.PublicKey != n.Status.PublicKey || isShutOut(old) != isShutOut(n) {
				a.lookAtCephClients()
			}
		},
	}
}

// isShutOut says whether the clients that a node has will not be let in again.
func isShutOut(n *v1beta1.StorageNode) bool {
	return n.Spec.Fence != nil && n.Spec.Fence.ShutOutAt != nil
}

func (a *Agent) reconcileNodeUsers(ctx context.Context) error {
	n := a.nodeObject()
	if a.NodeUsers == nil || n == nil {
		return nil
	}
	if err := readable(n); err != nil {
		return err
	}
	if a.users.seen == nil {
		a.users = nodeUsers{seen: map[string]time.Time{}, missed: map[string]time.Time{}, removed: map[string]bool{}}
	}
	had, nodes := map[string]v1beta1.NodeUser{}, map[string]*v1beta1.StorageNode{}
	for _, u := range n.Status.NodeUsers {
		had[u.Node], nodes[u.Node] = u, nil
	}
	for _, other := range listed[v1beta1.StorageNode](a.watches.nodes) {
		if v1beta1.IsSite(other.Name) { // an account of a tenant's namespace may write that of an NFS server
			continue
		}
		if _, has := had[other.Name]; has || other.Status.PublicKey != "" {
			nodes[other.Name] = other
		}
	}
	next, errs := []v1beta1.NodeUser{}, []error{}
	room, without := mostNodeUsers-len(had), 0
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		_, has := had[name]
		if !has && room <= 0 { // those that have one keep it
			without++
			continue
		}
		u, err := a.nodeUser(ctx, had[name], name, nodes[name])
		if u.Node != "" {
			next = append(next, u)
			if !has {
				room--
			}
		}
		errs = append(errs, err)
	}
	if without > 0 {
		errs = append(errs, fmt.Errorf("%w: %d nodes have a user of their own, as many as can, and %d have none: give the pool ceph.nodeSecretRef, for one that all have", backend.ErrPrecondition, len(next), without))
	}
	if !slices.Equal(next, n.Status.NodeUsers) {
		if err := a.reportList(ctx, n, "nodeUsers", next); err != nil {
			errs = append(errs, fmt.Errorf("%w: handing the nodes the keys of their users: %w", backend.ErrUnavailable, err))
		}
	}
	return errors.Join(errs...)
}

// nodeUser returns what a node is to have, given what it had; nothing if it is to have none. A node that is not there is nil.
func (a *Agent) nodeUser(ctx context.Context, had v1beta1.NodeUser, name string, n *v1beta1.StorageNode) (v1beta1.NodeUser, error) {
	if n != nil {
		delete(a.users.missed, name)
	} else if _, is := a.users.missed[name]; !is {
		a.users.missed[name] = time.Now()
	}
	switch {
	case n == nil && time.Since(a.users.missed[name]) < nodeUserStays*a.SurveyEvery:
		return had, nil
	case n == nil, isShutOut(n):
		if a.users.removed[name] {
			return v1beta1.NodeUser{}, nil
		}
		if err := a.NodeUsers.RemoveNodeUser(ctx, name); err != nil {
			return had, err
		}
		a.log.Info("the user of a node was removed from the Ceph cluster", "node", name)
		a.users.removed[name] = true
		delete(a.users.seen, name)
		return v1beta1.NodeUser{}, nil
	case n.Status.PublicKey == "", had.PublicKey == n.Status.PublicKey && time.Since(a.users.seen[name]) < nodeUserLook*a.SurveyEvery:
		return had, nil
	}
	delete(a.users.removed, name)
	key, err := a.NodeUsers.NodeUser(ctx, name, n.Status.PublicKey)
	if err != nil {
		return had, err
	}
	a.users.seen[name] = time.Now()
	return v1beta1.NodeUser{Node: name, PublicKey: n.Status.PublicKey, Key: key}, nil
}
