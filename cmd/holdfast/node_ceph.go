//go:build linux && !client

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	storage "k8s.io/client-go/kubernetes/typed/storage/v1"

	typed "github.com/holdfast-storage/holdfast/api/client/clientset/typed/api/v1beta1"
	"github.com/holdfast-storage/holdfast/api/convert"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/local"
	"github.com/holdfast-storage/holdfast/driver"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// useCeph lets the driver use volumes of Ceph pools beside those of this node.
func (n *node) useCeph(storage *local.Backend, keys *cephKeys, released func(backend.ID)) {
	reached := &nodeStorage{
		Backend: storage, node: n.driver.NodeID, driver: n.driver.Name, api: n.clients.holdfast.HoldfastV1beta1(), attachments: n.clients.kubernetes.StorageV1().VolumeAttachments(),
	}
	n.driver.Backend, n.driver.CephKeys = reached, keys
	n.driver.Released = func(id backend.ID) {
		reached.forget(id)
		released(id)
	}
}

// cephKeys has the keys of the users as whom this node uses volumes of Ceph pools: in files, of the user that all nodes have;
// and in the StorageNode of a pool that has one for each node, encrypted.
type cephKeys struct {
	files driver.CephKeyFiles
	pools typed.StorageNodeInterface
	own   nodeops.NodeKey
	lacks error // why this node has no key to decrypt with
}

// ownCephKeys keeps what it decrypts with beside the socket: each node has the kubelet's directory, whatever its pools are.
func (n *node) ownCephKeys(log *slog.Logger) *cephKeys {
	keys := &cephKeys{files: driver.CephKeyFiles(n.cephKeys), pools: n.clients.holdfast.HoldfastV1beta1().StorageNodes()}
	socket, err := driver.SocketPath(n.driver.Endpoint)
	if err == nil {
		keys.own, err = nodeops.LoadNodeKey(filepath.Join(filepath.Dir(socket), "node.key"))
	}
	if keys.lacks = err; err != nil {
		log.Error("volumes of Ceph pools that have a user for each node cannot be used here", "error", keys.lacks)
	}
	return keys
}

// public is what pools encrypt to; nothing if this node could not decrypt it.
func (k *cephKeys) public() string {
	if k == nil || k.lacks != nil {
		return ""
	}
	return k.own.Public()
}

// CephKey asks the API server only for what is in no file.
func (k *cephKeys) CephKey(ctx context.Context, c backend.Ceph, node string) (none nodeops.CephKey, err error) {
	pool, own := c.HasOwnUsers()
	switch {
	case !own:
		return k.files.CephKey(ctx, c, node)
	case k.lacks != nil:
		return none, errors.New(k.lacks.Error()) // and not that a file is missing, which is said of those of all nodes
	}
	ctx, cancel := context.WithTimeout(ctx, lookUpTime)
	defer cancel()
	site, err := k.pools.Get(ctx, v1beta1.NodeOfCephPool(pool), metav1.GetOptions{})
	if err != nil {
		return none, err
	}
	i := slices.IndexFunc(site.Status.NodeUsers, func(u v1beta1.NodeUser) bool { return u.Node == node && u.PublicKey == k.own.Public() })
	if i < 0 {
		if n, err := k.pools.Get(ctx, node, metav1.GetOptions{}); err == nil && n.Spec.Fence != nil {
			return none, fmt.Errorf("node %s is shut out of all Ceph clusters since %s, and has a user again when it is let in", node, n.Spec.Fence.RequestedAt.UTC().Format(time.RFC3339))
		}
		return none, fmt.Errorf("pool %s has none for it yet in status.nodeUsers of StorageNode %s: its pod makes it, and says in the condition %s of that StorageNode what keeps it from that", pool, site.Name, v1beta1.NodeUserRefusedCondition)
	}
	text, err := k.own.Open(site.Status.NodeUsers[i].Key, c.FSID+"."+c.UserOf(node))
	if err != nil {
		return none, fmt.Errorf("what StorageNode %s has in status.nodeUsers: %w", site.Name, err)
	}
	return nodeops.ParseCephKey(string(text))
}

// cephClient is the kernel's client for volumes of an engine. As the use of a volume does, check has the kernel load a module
// that it lacks, which is more than to look whether it is loaded already.
type cephClient struct {
	condition string // of the StorageNode
	check     func() error
}

var cephClients = map[string]cephClient{
	"rbd":    {v1beta1.RBDVolumesCondition, nodeops.CheckRBDClient},
	"cephfs": {v1beta1.CephFSVolumesCondition, nodeops.CheckCephFSClient},
}

// cephVolumes say what keeps volumes of Ceph pools from being used on this node, by condition.
func (n *node) cephVolumes() map[string]func() (reason string, err error) {
	all := map[string]func() (string, error){}
	for _, engine := range n.cephEngines {
		client := cephClients[engine]
		all[client.condition] = func() (string, error) {
			err := client.check()
			if err == nil {
				return "", nil
			}
			reason := v1beta1.ReasonForbidden
			if _, is := errors.AsType[*nodeops.CephClientError](err); is {
				reason = v1beta1.ReasonNoCephClient
			}
			return reason, fmt.Errorf("volumes of pools with engine %s cannot be used on this node: %w", convert.FromEngine(engine), err)
		}
	}
	return all
}

// nodeStorage is what a node can use: what is in its own pools, and what is in Ceph pools, where its object says how to reach
// it. The agent of that pool is not needed for that.
type nodeStorage struct {
	*local.Backend
	node, driver string
	api          typed.HoldfastV1beta1Interface
	attachments  storage.VolumeAttachmentInterface

	mu    sync.Mutex
	known map[backend.ID]backend.Volume // of Ceph pools
}

var _ backend.Recaller = (*nodeStorage)(nil)

// lookUpTime is how long the API server may take.
const lookUpTime = 10 * time.Second

// Get asks the API server only for what no pool of this node has.
func (s *nodeStorage) Get(ctx context.Context, id backend.ID) (*backend.Volume, error) {
	v, err := s.Backend.Get(ctx, id)
	if err == nil || !errors.Is(err, backend.ErrNotFound) && !errors.Is(err, backend.ErrUnavailable) {
		return v, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookUpTime)
	defer cancel()
	o, failed := s.api.Volumes().Get(ctx, string(id), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(failed):
		return nil, err
	case failed != nil:
		return nil, fmt.Errorf("%w: volume %s is in no pool of this node, and its object cannot be read, which says whether it is in a Ceph pool: %w", backend.ErrUnavailable, id, failed)
	case v1beta1.CephPoolOf(o.Spec.Node) == "":
		return nil, err
	case o.Unreadable() != nil:
		return nil, fmt.Errorf("%w: volume %s: its object cannot be read: %w", backend.ErrPrecondition, id, o.Unreadable())
	case o.Status.CreationTime == nil:
		return nil, fmt.Errorf("%w: volume %s, which is not made yet in %s", backend.ErrNotFound, id, v1beta1.SiteOf(o.Spec.Node))
	}
	v = convert.ToVolume(o)
	v.Incomplete, v.AttachedTo = o.IsIncomplete(), o.Annotations[v1beta1.AttachedAnnotation]
	if v.AttachedTo == "" && v.Access.RBD != nil {
		if v.AttachedTo, err = s.hasIt(ctx, id); err == nil && v.AttachedTo == "" {
			v.Detached, err = s.isDetached(ctx, id)
		}
		if err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = map[backend.ID]backend.Volume{}
	}
	s.known[id] = *v
	return v, nil
}

// hasIt returns another node whose kernel has a volume, by the record of its agent, and that was not shut out: the object of a
// volume that was deleted, and written again by the agent of its pool, does not say where it is attached.
func (s *nodeStorage) hasIt(ctx context.Context, id backend.ID) (node string, err error) {
	all, err := s.api.StorageNodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("%w: volume %s is attached to no node by its object, and whether another node has it cannot be read: %w", backend.ErrUnavailable, id, err)
	}
	for i := range all.Items {
		if n := &all.Items[i]; n.Name != s.node && !n.WasShutOut() && slices.Contains(n.Status.CephVolumes, string(id)) {
			return n.Name, nil
		}
	}
	return "", nil
}

// isDetached says whether Kubernetes has not attached a volume to this node. A node whose account may not read that, since the
// rights are those of an earlier release, goes by the records of the others alone.
func (s *nodeStorage) isDetached(ctx context.Context, id backend.ID) (bool, error) {
	a, err := s.attachments.Get(ctx, v1beta1.AttachmentName(string(id), s.driver, s.node), metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return false, nil
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("%w: volume %s is attached to no node by its object, and its VolumeAttachment cannot be read: %w", backend.ErrUnavailable, id, err)
	}
	return !a.Status.Attached, nil
}

// Recall spares the API server.
func (s *nodeStorage) Recall(ctx context.Context, id backend.ID) (*backend.Volume, error) {
	s.mu.Lock()
	v, is := s.known[id]
	s.mu.Unlock()
	if is {
		return &v, nil
	}
	return s.Get(ctx, id)
}

func (s *nodeStorage) forget(id backend.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, id)
}
