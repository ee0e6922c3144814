package driver

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-storage/holdfast/backend"
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

// share is what of a shared volume a node mounts: a directory of an NFS server, or one of a CephFS.
type share struct {
	server string // address or name
	port   uint16 // 0: that of NFS
	path   string
	cephfs *backend.CephFS
}

// sharedAccess is what nodes mount of a volume that the backend knows as one that they mount over the network.
func sharedAccess(v *backend.Volume) (s share, is bool) {
	return share{cephfs: v.Access.CephFS}, v.Access.CephFS != nil
}

// parseContext reads the context of a volume; one that is not shared has nothing of it. The path must be that of the
// volume: by it alone its mounts are known afterwards.
func parseContext(id backend.ID, volume map[string]string) (s share, shared bool, err error) {
	s = share{server: volume[serverContext], path: volume[pathContext]}
	switch {
	case s == share{}:
		return s, false, nil
	case s.path != "/"+string(id):
		err = fmt.Errorf("%w volume_context: %s is %s; of volume %s it must be /%s", backend.ErrInvalid, pathContext, backend.Quote(s.path), id, id)
	case net.ParseIP(s.server) == nil && !isHostName(s.server):
		err = fmt.Errorf("%w volume_context: %s is %s; it must be an address or the name of a host", backend.ErrInvalid, serverContext, backend.Quote(s.server))
	}
	if port := volume[portContext]; port != "" && err == nil {
		n, wrong := strconv.ParseUint(port, 10, 16)
		if wrong != nil || n == 0 {
			return s, true, fmt.Errorf("%w volume_context: %s is %s; it must be a number from 1 to 65535", backend.ErrInvalid, portContext, backend.Quote(port))
		}
		s.port = uint16(n)
	}
	return s, true, err
}

func isHostName(s string) bool {
	const most = 253
	other := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '.'
	}
	return s != "" && len(s) <= most && !strings.HasPrefix(s, "-") && !strings.HasPrefix(s, ".") && !strings.ContainsFunc(s, other)
}

// address resolves the server within the limit of ctx.
func (s share) address(ctx context.Context) (string, error) {
	if net.ParseIP(s.server) != nil {
		return s.server, nil
	}
	all, err := net.DefaultResolver.LookupIP(ctx, "ip", s.server)
	if err != nil {
		return "", fmt.Errorf("%w: the address of NFS server %s: %w", backend.ErrUnavailable, s.server, err)
	}
	slices.SortFunc(all, func(a, b net.IP) int { return len(b.To4()) - len(a.To4()) }) // IPv4 first
	return all[0].String(), nil
}

// String is how people know the share.
func (s share) String() string {
	if s.cephfs != nil {
		return fmt.Sprintf("%s of file system %s of the Ceph cluster %s", s.cephfs.Path, s.cephfs.FileSystem, s.cephfs.Cluster.FSID)
	}
	return nodeops.NFS{Server: s.server, Path: s.path}.String()
}

// shownBy says whether a mount of the volume is one of the share.
func (s share) shownBy(m *nodeops.Mount) bool {
	if s.cephfs != nil {
		return cephFS(s.cephfs, cluster(s.cephfs.Cluster)).ShownBy(m)
	}
	return m.Source == s.String()
}

// check says whether the share can be mounted with the options.
func (s share) check(options []string) error {
	if s.cephfs != nil {
		return nodeops.CheckCephFSOptions(options)
	}
	return nodeops.CheckNFSOptions(options)
}

// isOfServer says whether m is a mount of the whole shared volume. Nothing of the file system is touched: its server may
// be dead. The kernel shows a mount of a directory inside it with that directory's path.
func isOfServer(m *nodeops.Mount, id backend.ID) bool {
	if path := nodeops.CephFSPath(m); path != "" {
		return isCephPath(path, id)
	}
	return (m.FSType == "nfs4" || m.FSType == "nfs") && m.Root == "/" && strings.HasSuffix(m.Source, ":/"+string(id))
}

// sharedAt returns the shared volume's mount at path, nil if there is none.
func sharedAt(id backend.ID, path string) (*nodeops.Mount, error) {
	if err := parsePath("path", path); err != nil {
		return nil, err
	}
	resolved, err := resolve(path)
	if err != nil {
		return nil, err
	}
	m, err := nodeops.MountAt(resolved)
	if err != nil || m == nil || !isOfServer(m, id) {
		return nil, err
	}
	return m, nil
}

// sharedAmong returns the shared volume's mounts at some of the paths, of which any may be empty.
func sharedAmong(id backend.ID, paths ...string) (all []*nodeops.Mount) {
	for _, path := range paths {
		if m, err := sharedAt(id, path); m != nil && err == nil {
			all = append(all, m)
		}
	}
	return all
}

func (n *node) sharedStats(ctx context.Context, id backend.ID, m *nodeops.Mount) (*csi.NodeGetVolumeStatsResponse, error) {
	usage, err := n.sharedUsage(ctx, m)
	if err != nil {
		return nil, fmt.Errorf("%w: volume %s: %w", backend.ErrUnavailable, id, err)
	}
	resp := &csi.NodeGetVolumeStatsResponse{Usage: volumeUsage(&backend.Volume{ID: id, Shared: true}, usage)}
	setCondition(resp, backend.Condition{})
	return resp, nil
}

func (n *node) sharedHealth(ctx context.Context, id backend.ID, mounts []*nodeops.Mount) *csi.NodeGetVolumeHealthResponse {
	h := &csi.VolumeHealth{VolumeId: string(id)}
	if _, err := n.sharedUsage(ctx, mounts[0]); err != nil { // they have one server
		h.HealthStatuses = append(h.HealthStatuses, &csi.VolumeHealth_VolumeHealthEntry{
			Status: csi.VolumeHealthErrorType_INACCESSIBLE, Reason: "ServerNotAnswering", Message: err.Error(),
		})
	}
	return &csi.NodeGetVolumeHealthResponse{VolumeHealth: h}
}

func (n *node) sharedUsage(ctx context.Context, m *nodeops.Mount) (nodeops.FSUsage, error) {
	ctx, cancel := context.WithTimeout(ctx, n.Patience)
	defer cancel()
	return nodeops.StatfsShared(ctx, m)
}
