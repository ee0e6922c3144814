package driver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/crashpoint"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// A shared volume is on an NFS server, which every node reaches. What a node needs to know of it travels in the volume's
// context: the backend of a node knows only its own volumes.
const (
	serverContext = "holdfast.dev/nfs-server"
	portContext   = "holdfast.dev/nfs-port" // not of a server that has that of NFS
	pathContext   = "holdfast.dev/nfs-path"
)

// nfsContext is nil as long as it is not known how a shared volume is reached.
func nfsContext(v *backend.Volume) map[string]string {
	if v.Access.NFS == nil {
		return nil
	}
	c := map[string]string{serverContext: v.Access.NFS.Server, pathContext: v.Access.NFS.Path}
	if port := v.Access.NFS.Port; port != 0 {
		c[portContext] = strconv.Itoa(int(port))
	}
	return c
}

// parseContext returns the shared volume that a context describes, nil for one that is not shared. The path must be that of the
// volume: by it alone its mounts are known afterwards.
func parseContext(id backend.ID, volume map[string]string) (*backend.Volume, error) {
	server, path := volume[serverContext], volume[pathContext]
	switch {
	case server == "" && path == "":
		return nil, nil //nolint:nilnil // as said
	case path != "/"+string(id):
		return nil, fmt.Errorf("%w volume_context: %s is %s; of volume %s it must be /%s", backend.ErrInvalid, pathContext, backend.Quote(path), id, id)
	case net.ParseIP(server) == nil && !hostName.MatchString(server):
		return nil, fmt.Errorf("%w volume_context: %s is %s; it must be an address or the name of a host", backend.ErrInvalid, serverContext, backend.Quote(server))
	}
	var number uint64
	if port := volume[portContext]; port != "" {
		var err error
		if number, err = strconv.ParseUint(port, 10, 16); err != nil || number == 0 {
			return nil, fmt.Errorf("%w volume_context: %s is %s; it must be a number from 1 to 65535", backend.ErrInvalid, portContext, backend.Quote(port))
		}
	}
	return &backend.Volume{ID: id, Mode: backend.Filesystem, Reach: backend.ManyHosts, Access: backend.Access{
		NFS: &backend.NFS{Server: server, Port: int32(number), Path: path},
	}}, nil
}

var hostName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9.-]{0,252}$`)

// nfsAttachment is of a directory of an NFS server.
type nfsAttachment struct {
	networkFS
	nfs nodeops.NFS
}

func newNFSAttachment(n *node, v *backend.Volume) nfsAttachment {
	s := v.Access.NFS
	nfs := nodeops.NFS{Server: s.Server, Port: uint16(s.Port), Path: s.Path, Namespaces: n.Namespaces}
	shown := func(m *nodeops.Mount) bool { return m.Source == nfs.String() }
	return nfsAttachment{networkFS{n, v.ID, nfs.String(), shown}, nfs}
}

func (s nfsAttachment) mount(ctx context.Context, a access, staging string) error {
	if err := nodeops.CheckNFSOptions(a.flags); err != nil {
		return fmt.Errorf("%w volume_capability: %w", backend.ErrInvalid, err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.n.Patience)
	defer cancel()
	var err error
	if s.nfs.Address, err = address(ctx, s.nfs.Server); err != nil {
		return fmt.Errorf("volume %s: %w", s.id, err)
	}
	s.nfs.Options = a.mountOptions()
	err = nodeops.MountNFS(ctx, s.nfs, staging)
	if lack, is := errors.AsType[*nodeops.NFSClientError](err); is {
		return fmt.Errorf("%w: volume %s: node %s cannot mount shared volumes: %w", backend.ErrPrecondition, s.id, s.n.NodeID, lack)
	}
	if err != nil {
		return s.unavailable(err)
	}
	crashpoint.Here(crashpoint.StageMounted)
	s.n.raiseReadAhead(staging)
	return nil
}

func (s nfsAttachment) complete(_ context.Context, _ access, m *nodeops.Mount) error {
	s.n.raiseReadAhead(m.Target)
	return nil
}

// raiseReadAhead makes shared volumes faster. Where that fails they are as slow as the kernel makes them.
func (n *node) raiseReadAhead(staging string) {
	if err := nodeops.RaiseReadAhead(staging); err != nil {
		n.slowReads.Do(func() {
			n.Log.Warn("shared volumes are read slowly: the kernel's read-ahead cannot be raised in /sys", "error", err)
		})
	}
}

// address resolves an NFS server within the limit of ctx.
func address(ctx context.Context, server string) (string, error) {
	if net.ParseIP(server) != nil {
		return server, nil
	}
	all, err := net.DefaultResolver.LookupIP(ctx, "ip", server)
	if err != nil {
		return "", fmt.Errorf("%w: the address of NFS server %s: %w", backend.ErrUnavailable, server, err)
	}
	slices.SortFunc(all, func(a, b net.IP) int { return len(b.To4()) - len(a.To4()) }) // IPv4 first
	return all[0].String(), nil
}
