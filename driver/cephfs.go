package driver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/crashpoint"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// grantEvery is how often a mount is tried that the cluster refuses.
const grantEvery = 200 * time.Millisecond

// cephFSAttachment is of a directory of a CephFS.
type cephFSAttachment struct {
	networkFS
	cluster backend.Ceph
	fs      nodeops.CephFS
}

func newCephFSAttachment(n *node, v *backend.Volume) cephFSAttachment {
	c := v.Access.CephFS
	fs := nodeops.CephFS{Cluster: cluster(c.Cluster), FileSystem: c.FileSystem, Path: c.Path}
	source := fmt.Sprintf("%s of file system %s of the Ceph cluster %s", c.Path, c.FileSystem, c.Cluster.FSID)
	return cephFSAttachment{networkFS{n, v.ID, source, fs.ShownBy}, c.Cluster, fs}
}

func (c cephFSAttachment) mount(ctx context.Context, a access, staging string) error {
	if err := nodeops.CheckCephFSOptions(a.flags); err != nil {
		return fmt.Errorf("%w volume_capability: %w", backend.ErrInvalid, err)
	}
	if !isCephPath(c.fs.Path, c.id) { // by it alone its mounts are known afterwards
		return fmt.Errorf("%w: volume %s is in %s, of which no directory has its id", backend.ErrPrecondition, c.id, backend.Quote(c.fs.Path))
	}
	ctx, cancel := context.WithTimeout(ctx, c.n.Patience)
	defer cancel()
	c.fs.Options = a.mountOptions()
	if err := c.awaitMount(ctx, staging); err != nil {
		return err
	}
	crashpoint.Here(crashpoint.StageMounted)
	m, err := nodeops.MountAt(staging)
	if err == nil && m != nil && c.is(m) { // the record of a volume that was not mounted yet may have gone
		err = c.record(ctx, m)
	}
	if err != nil {
		return errors.Join(err, nodeops.UnmountShared(context.WithoutCancel(ctx), staging, c.n.Patience, 0))
	}
	return nil
}

// awaitMount mounts a volume. Where each node has a user of its own, the cluster may refuse it until shortly after the volume was
// attached, when the agent of the pool has seen that.
func (c cephFSAttachment) awaitMount(ctx context.Context, staging string) error {
	_, own := c.cluster.HasOwnUsers()
	for {
		again, err := c.tryMount(ctx, staging)
		if err == nil || !again || !own {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(grantEvery):
		}
	}
}

// tryMount mounts a volume whose client is recorded before, and says whether it may be tried again.
func (c cephFSAttachment) tryMount(ctx context.Context, staging string) (again bool, err error) {
	if c.fs.Cluster, err = c.n.ceph(ctx, c.id, c.cluster); err != nil {
		return true, err
	}
	var refused error
	err = nodeops.MountCephFS(ctx, c.fs, staging, func(client nodeops.CephClient) error {
		refused = c.n.recordCephClient(ctx, c.id, client)
		return refused
	})
	if err == nil || refused != nil {
		return false, refused
	}
	_, lack := errors.AsType[*nodeops.CephClientError](err)
	return !lack, c.n.cephError(c.id, err)
}

// complete records the client again, as the record may have been lost since.
func (c cephFSAttachment) complete(ctx context.Context, _ access, m *nodeops.Mount) error {
	return c.record(ctx, m)
}

// record asks the mount for its client, which takes an answer of the cluster.
func (c cephFSAttachment) record(ctx context.Context, m *nodeops.Mount) error {
	ctx, cancel := context.WithTimeout(ctx, c.n.Patience)
	defer cancel()
	client, err := nodeops.CephFSClient(ctx, m)
	if err != nil {
		return c.unavailable(err)
	}
	return c.n.recordCephClient(ctx, c.id, client)
}
