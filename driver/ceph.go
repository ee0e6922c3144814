package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/crashpoint"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// CephKeys has the keys of the users as whom a node speaks to Ceph clusters. They are requested whenever a volume is
// staged and kept nowhere.
type CephKeys interface {
	// CephKey returns the key of the user that c has for a node.
	CephKey(ctx context.Context, c backend.Ceph, node string) (nodeops.CephKey, error)
}

// CephKeyFiles is a directory with a file FSID.USER for each user of each cluster, with its key, of mode 0400.
type CephKeyFiles string

// CephKey reads the file.
func (dir CephKeyFiles) CephKey(_ context.Context, c backend.Ceph, node string) (nodeops.CephKey, error) {
	name := c.FSID + "." + c.UserOf(node)
	if name != filepath.Base(name) {
		return nodeops.CephKey{}, fmt.Errorf("%s cannot be a file name", backend.Quote(name))
	}
	return nodeops.ReadCephKey(filepath.Join(string(dir), name))
}

// grantEvery is how often a mount is tried that the cluster refuses.
const grantEvery = 200 * time.Millisecond

// isConfined says whether a node reaches a volume only from shortly after it was attached, when the agent of the pool has seen that.
func isConfined(c *backend.CephFS) bool {
	_, own := c.Cluster.HasOwnUsers()
	return own
}

// ceph is the cluster of a volume, as this node connects to it.
func (n *node) ceph(ctx context.Context, id backend.ID, c backend.Ceph) (nodeops.Ceph, error) {
	at := cluster(c)
	if n.CephKeys == nil {
		return at, fmt.Errorf("%w: volume %s is in the Ceph cluster %s, of which node %s has no keys", backend.ErrPrecondition, id, c.FSID, n.NodeID)
	}
	at.Namespaces, at.User = n.Namespaces, c.UserOf(n.NodeID)
	var err error
	at.Key, err = n.CephKeys.CephKey(ctx, c, n.NodeID)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return at, fmt.Errorf("%w: volume %s: node %s has no key of user %s of the Ceph cluster %s yet: the secret that ceph.nodeSecretRef of the pool names must have it, and a change gets to the node in a minute or two: %w",
			backend.ErrPrecondition, id, n.NodeID, at.User, c.FSID, err)
	case err != nil:
		return at, fmt.Errorf("%w: volume %s: the key of user %s of the Ceph cluster %s: %w", backend.ErrPrecondition, id, at.User, c.FSID, err)
	}
	return at, nil
}

// cluster is one that is not connected to.
func cluster(c backend.Ceph) nodeops.Ceph {
	return nodeops.Ceph{FSID: c.FSID, Monitors: c.Monitors, User: c.User, Secure: c.Secure}
}

func cephFS(c *backend.CephFS, at nodeops.Ceph) *nodeops.CephFS {
	return &nodeops.CephFS{Cluster: at, FileSystem: c.FileSystem, Path: c.Path}
}

func (n *node) mountCephFS(ctx context.Context, id backend.ID, c *backend.CephFS, options []string, staging string) error {
	if !isCephPath(c.Path, id) { // by it alone its mounts are known afterwards
		return fmt.Errorf("%w: volume %s is in %s, of which no directory has its id", backend.ErrPrecondition, id, backend.Quote(c.Path))
	}
	for {
		again, err := n.tryCephFS(ctx, id, c, options, staging)
		if err == nil {
			break
		}
		if !again || !isConfined(c) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(grantEvery):
		}
	}
	crashpoint.Here(crashpoint.StageMounted)
	if err := n.reportCephFSClient(ctx, id, staging); err != nil { // the record of a volume that was not mounted yet may have gone
		return errors.Join(err, nodeops.UnmountShared(context.WithoutCancel(ctx), staging, n.Patience, 0))
	}
	return nil
}

// tryCephFS mounts a volume whose client is recorded before, and says whether it may be tried again.
func (n *node) tryCephFS(ctx context.Context, id backend.ID, c *backend.CephFS, options []string, staging string) (again bool, err error) {
	at, err := n.ceph(ctx, id, c.Cluster)
	if err != nil {
		return true, err
	}
	fs := cephFS(c, at)
	fs.Options = options
	var refused error
	err = nodeops.MountCephFS(ctx, *fs, staging, func(client nodeops.CephClient) error {
		refused = n.recordCephClient(ctx, id, client)
		return refused
	})
	if err == nil || refused != nil {
		return false, refused
	}
	_, lack := errors.AsType[*nodeops.CephClientError](err)
	return !lack, n.cephError(id, err)
}

func (n *node) recordCephClient(ctx context.Context, id backend.ID, client nodeops.CephClient) error {
	if n.CephClient == nil {
		return nil
	}
	return n.CephClient(ctx, id, client)
}

func (n *node) reportCephFSClient(ctx context.Context, id backend.ID, staging string) error {
	m, err := sharedAt(id, staging)
	if err != nil || m == nil {
		return err
	}
	client, err := nodeops.CephFSClient(ctx, m)
	if err != nil {
		return fmt.Errorf("%w: volume %s: %w", backend.ErrUnavailable, id, err)
	}
	return n.recordCephClient(ctx, id, client)
}

// cephError says what a failure to reach a volume in a Ceph cluster is to a caller.
func (n *node) cephError(id backend.ID, err error) error {
	if lack, is := errors.AsType[*nodeops.CephClientError](err); is {
		return fmt.Errorf("%w: volume %s: node %s cannot use volumes in Ceph clusters: %w", backend.ErrPrecondition, id, n.NodeID, lack)
	}
	return fmt.Errorf("%w: volume %s: %w", backend.ErrUnavailable, id, err)
}
