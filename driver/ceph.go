package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/holdfast-storage/holdfast/backend"
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

func (n *node) recordCephClient(ctx context.Context, id backend.ID, client nodeops.CephClient) error {
	if n.CephClient == nil {
		return nil
	}
	return n.CephClient(ctx, id, client)
}

// cephError says what a failure to reach a volume in a Ceph cluster is to a caller.
func (n *node) cephError(id backend.ID, err error) error {
	if lack, is := errors.AsType[*nodeops.CephClientError](err); is {
		return fmt.Errorf("%w: volume %s: node %s cannot use volumes in Ceph clusters: %w", backend.ErrPrecondition, id, n.NodeID, lack)
	}
	return fmt.Errorf("%w: volume %s: %w", backend.ErrUnavailable, id, err)
}
