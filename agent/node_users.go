package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	storage "k8s.io/api/storage/v1"
	storagewatch "k8s.io/client-go/informers/storage/v1"

	watch "github.com/holdfast-storage/holdfast/api/client/informers/api/v1beta1"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/kube"
)

// The agent of a pool in a Ceph cluster makes a user for each node that reports a public key, and puts the user's key,
// encrypted to that, into status.nodeUsers of its StorageNode. A user is removed when the clients of its node were shut out for
// good, so that who has the key does not come back: the node gets another one when it is let in again. Before that it stays,
// whatever is deleted: the kernel of a node that runs goes on only as long as its user is there.
//
// A user that is confined reaches the volumes that are attached to its node. One that the kernel there still has stays
// within its reach: what says that it is attached may have been deleted by mistake, or be missing in a backup.

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
	given   map[string][]string  // what it was made for then, and its key, encrypted
	missed  map[string]time.Time // since when its StorageNode is not there
	removed map[string]bool
}

func (a *Agent) nodeUserListener() watch.StorageNodeHandlerFuncs {
	return watch.StorageNodeHandlerFuncs{
		AddFunc: func(*v1beta1.StorageNode) { a.lookAtCephClients() },
		UpdateFunc: func(old, n *v1beta1.StorageNode) {
			if old.Status.PublicKey != n.Status.PublicKey || isShutOut(old) != isShutOut(n) || !slices.Equal(old.Status.CephVolumes, n.Status.CephVolumes) {
				a.lookAtCephClients()
			}
		},
	}
}

func (a *Agent) attachmentListener() storagewatch.VolumeAttachmentHandlerFuncs {
	return storagewatch.VolumeAttachmentHandlerFuncs{
		AddFunc:    func(*storage.VolumeAttachment) { a.lookAtCephClients() },
		DeleteFunc: func(storagewatch.DeletedVolumeAttachment) { a.lookAtCephClients() },
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
		a.users = nodeUsers{seen: map[string]time.Time{}, given: map[string][]string{}, missed: map[string]time.Time{}, removed: map[string]bool{}}
	}
	had, nodes := a.usersOf(n)
	attached := a.attached()
	next, errs := []v1beta1.NodeUser{}, []error{}
	room, without := mostNodeUsers-len(had), 0
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		_, has := had[name]
		if !has && room <= 0 { // those that have one keep it
			without++
			continue
		}
		u, err := a.nodeUser(ctx, had[name], name, nodes[name], attached[name])
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

// usersOf returns what the StorageNode of this pool has, and the nodes that have a user or can have one: nil for one that is not there.
func (a *Agent) usersOf(n *v1beta1.StorageNode) (had map[string]v1beta1.NodeUser, nodes map[string]*v1beta1.StorageNode) {
	had, nodes = map[string]v1beta1.NodeUser{}, map[string]*v1beta1.StorageNode{}
	for _, u := range n.Status.NodeUsers {
		had[u.Node], nodes[u.Node] = u, nil
	}
	for _, other := range kube.AllIn[*v1beta1.StorageNode](a.watches.nodes.GetStore()) {
		if v1beta1.IsSite(other.Name) { // an account of a tenant's namespace may write that of an NFS server
			continue
		}
		if _, has := had[other.Name]; has || other.Status.PublicKey != "" {
			nodes[other.Name] = other
		}
	}
	return had, nodes
}

// attached returns the volumes of this pool that are attached to each node, where users are confined to these.
func (a *Agent) attached() map[string][]backend.ID {
	all := map[string][]backend.ID{}
	if a.watches.attachments == nil {
		return all
	}
	for _, at := range kube.AllIn[*storage.VolumeAttachment](a.watches.attachments.GetStore()) {
		if id := a.volumeOf(at); id != "" {
			all[at.Spec.NodeName] = append(all[at.Spec.NodeName], backend.ID(id))
		}
	}
	for _, volumes := range all {
		slices.Sort(volumes)
	}
	return all
}

// volumeOf returns the volume of this pool that a VolumeAttachment is of; "" if it is of none. Its own name says which: no
// PersistentVolume has to be read. That has the name of the volume, unless an administrator wrote it.
func (a *Agent) volumeOf(at *storage.VolumeAttachment) string {
	is := func(id string) bool { return at.Name == v1beta1.AttachmentName(id, at.Spec.Attacher, at.Spec.NodeName) }
	if name := at.Spec.Source.PersistentVolumeName; at.Spec.Attacher != v1beta1.DriverName || name == nil {
		return ""
	} else if id, err := backend.IDFor(*name); err == nil && is(string(id)) {
		if kube.InStore[*v1beta1.Volume](a.watches.volumes.GetStore(), string(id)) == nil {
			return "" // of another pool
		}
		return string(id)
	}
	for _, v := range kube.AllIn[*v1beta1.Volume](a.watches.volumes.GetStore()) {
		if is(v.Name) {
			return v.Name
		}
	}
	return ""
}

// nodeUser returns what a node is to have, given what it had; nothing if it is to have none. A node that is not there is nil.
func (a *Agent) nodeUser(ctx context.Context, had v1beta1.NodeUser, name string, n *v1beta1.StorageNode, attached []backend.ID) (v1beta1.NodeUser, error) {
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
	}
	request := []string{n.Status.PublicKey}
	var inUse []backend.ID
	if a.NodeUsers.Confined() {
		for _, id := range n.Status.CephVolumes {
			inUse = append(inUse, backend.ID(id))
		}
		request = append(request, fmt.Sprint(attached, inUse))
	}
	if n.Status.PublicKey == "" || slices.Equal(a.users.given[name], append(request, had.Key)) && time.Since(a.users.seen[name]) < nodeUserLook*a.SurveyEvery {
		return had, nil
	}
	delete(a.users.removed, name)
	key, err := a.NodeUsers.NodeUser(ctx, name, n.Status.PublicKey, attached, inUse)
	if err != nil {
		return had, err
	}
	a.users.seen[name], a.users.given[name] = time.Now(), append(request, key)
	if key == "" {
		return v1beta1.NodeUser{}, nil
	}
	return v1beta1.NodeUser{Node: name, PublicKey: n.Status.PublicKey, Key: key}, nil
}
