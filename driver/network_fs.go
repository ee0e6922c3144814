package driver

import (
	"context"
	"fmt"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// networkFS is the common part of the attachments whose file systems are those of a server. A server that does not answer is waited
// for a while, and in the kernel as long as it takes: a repeated call continues to wait there, and a mount that is not requested
// again is never completed.
type networkFS struct {
	n       *node
	id      backend.ID
	source  string // for people
	shownBy func(m *nodeops.Mount) bool
}

// ofServer returns a volume and its mount at path if that is of a server, nil for any other. Nothing else may be known of the volume.
func (n *node) ofServer(id backend.ID, path string) (*mountState, *nodeops.Mount) {
	if parsePath("path", path) != nil {
		return nil, nil
	}
	m, err := nodeops.MountAt(path)
	if err != nil || m == nil || !isOfServer(m, id) {
		return nil, nil
	}
	v := &backend.Volume{ID: id, Mode: backend.Filesystem}
	return &mountState{id: id, v: v, attachment: nfsAttachment{networkFS: networkFS{n: n, id: id}}}, m
}

// isOfServer says whether m is a mount of the whole volume. Nothing of the file system is touched: its server may
// be dead. The kernel shows a mount of a directory inside it with that directory's path.
func isOfServer(m *nodeops.Mount, id backend.ID) bool {
	if path := nodeops.CephFSPath(m); path != "" {
		return isCephPath(path, id)
	}
	return (m.FSType == "nfs4" || m.FSType == "nfs") && m.Root == "/" && strings.HasSuffix(m.Source, ":/"+string(id))
}

func (f networkFS) is(m *nodeops.Mount) bool { return isOfServer(m, f.id) }

func (f networkFS) verify(m *nodeops.Mount, path string) error {
	switch {
	case m == nil:
		return fmt.Errorf("%w: volume %s of %s is not mounted at %s: delete the pods that use it on this node", backend.ErrPrecondition, f.id, f.source, path)
	case !f.shownBy(m):
		return fmt.Errorf("%w: volume %s is mounted at %s from %s, not from %s: delete the pods that use it on this node", backend.ErrPrecondition, f.id, path, m.Source, f.source)
	}
	return nil
}

func (networkFS) record(context.Context, *nodeops.Mount) error { return nil }

func (networkFS) grow(context.Context, *nodeops.Mount) error { return nil } // its server has grown it

// setGroup gives the top directory of a shared volume to the group of the pod, so that the pod can write there; the
// server gives what is made in it to the same group. A tree is never walked over the network, and what was in it keeps its
// groups. A server that squashes root refuses: there the volume's own group and mode count.
func (f networkFS) setGroup(ctx context.Context, m *nodeops.Mount, group int) error {
	ctx, cancel := context.WithTimeout(ctx, f.n.Patience)
	defer cancel()
	if err := nodeops.SetTopGroup(ctx, m, group); err != nil {
		f.n.Log.Warn("the group of a pod was not set on a shared volume", "volume", f.id, "group", group, "error", err)
	}
	return nil
}

func (f networkFS) bind(ctx context.Context, staged *nodeops.Mount, target string, readOnly bool, options []string) error {
	ctx, cancel := context.WithTimeout(ctx, f.n.Patience)
	defer cancel()
	return f.unavailable(nodeops.BindShared(ctx, staged.Target, target, readOnly, options))
}

func (f networkFS) stats(ctx context.Context, m *nodeops.Mount) ([]*csi.VolumeUsage, backend.Condition, error) {
	ctx, cancel := context.WithTimeout(ctx, f.n.Patience)
	defer cancel()
	usage, err := nodeops.StatfsShared(ctx, m)
	return volumeUsage(&backend.Volume{}, usage), backend.Condition{}, f.unavailable(err)
}

func (f networkFS) unavailable(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: volume %s: %w", backend.ErrUnavailable, f.id, err)
}
