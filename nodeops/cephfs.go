package nodeops

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// CephFS is a directory of a file system of a Ceph cluster.
type CephFS struct {
	Cluster    Ceph
	FileSystem string
	Path       string   // begins with /
	Options    []string // of mounts, one in each element; the defaults come before them
}

// cephfsDefaults: a client that its cluster has shut out stays out until it is mounted again. One that came back by itself
// (recover_session=clean) would throw away what it had not written, and its locks, while programs go on: a database would
// not learn of either in time. And a host that was fenced must not find its way back: so no caller may choose otherwise.
var cephfsDefaults = []string{"recover_session=no"}

// cephfsOptions are the options that may be given; the others say which file system, or as whom.
var cephfsOptions = []string{
	"wsize", "rsize", "rasize", "readdir_max_entries", "readdir_max_bytes", "caps_max", "caps_wanted_delay_min",
	"caps_wanted_delay_max", "acl", "noacl", "dcache", "nodcache", "rbytes", "norbytes", "dirstat", "nodirstat", "asyncreaddir",
	"noasyncreaddir", "ino32", "noino32", "wsync", "nowsync", "copyfrom", "nocopyfrom", "read_from_replica", "crush_location",
}

// CheckCephFSOptions says whether MountCephFS accepts the options.
func CheckCephFSOptions(options []string) error {
	if err := CheckMountOptions(options); err != nil {
		return err
	}
	_, others := attributesOf(options)
	for _, o := range others {
		if key, _, _ := strings.Cut(o, "="); !slices.Contains(cephfsOptions, key) {
			return fmt.Errorf("mount option %q is not one of a volume of CephFS; these are: %s, and those of any mount", shorten(o), strings.Join(cephfsOptions, ", "))
		}
	}
	return nil
}

func (c *CephFS) check() error {
	switch {
	case !filepath.IsAbs(c.Path) || filepath.Clean(c.Path) != c.Path || strings.ContainsFunc(c.Path, control):
		return fmt.Errorf("path %q: it must be absolute, and hold no control characters and no . or .. by itself", shorten(c.Path))
	case strings.Contains(c.Path, ":/"):
		return fmt.Errorf("path %q: it must not hold :/, before which the kernel looks for monitors", shorten(c.Path))
	}
	if err := cephWord("file system", c.FileSystem); err != nil {
		return err
	}
	if err := CheckCephFSOptions(c.Options); err != nil {
		return err
	}
	return c.Cluster.check()
}

// String is how people would write it.
func (c *CephFS) String() string { return c.FileSystem + ":" + c.Path }

// ShownBy says whether m is a mount of the whole directory. Nothing of the file system is touched: its cluster may be
// dead. That it is the cluster whose fsid the kernel shows was checked before the mount got its place.
func (c *CephFS) ShownBy(m *Mount) bool {
	return CephFSPath(m) == c.Path && has(m.Options, "fsid="+c.Cluster.FSID) && has(m.Options, "mds_namespace="+c.FileSystem)
}

// CephFSPath is the directory of a CephFS that m is a mount of as a whole, "" if it is none.
func CephFSPath(m *Mount) string {
	if m.FSType != "ceph" || m.Root != "/" {
		return ""
	}
	_, path, found := strings.Cut(m.Source, ":/")
	if !found {
		return ""
	}
	return "/" + path
}

// MountCephFS mounts a directory of a CephFS. It needs nothing of the host but a kernel with the module ceph, which is a
// CephClientError where it has not, and returns when ctx ends: what the kernel then still waits for never appears at
// target, and a repeat waits with it. The key of the user is seen by the kernel alone. Nothing sees the mount before use, which
// may be nil, has accepted the client that the kernel made for it.
func MountCephFS(ctx context.Context, c CephFS, target string, use func(CephClient) error) error {
	if err := c.check(); err != nil {
		return fmt.Errorf("mounting %s: %w", &c, err)
	}
	what := fmt.Sprintf("%s of the Ceph cluster %s with %q", &c, c.Cluster.FSID, c.Options)
	err := detached.mountAt(ctx, target, what, func() (newMount, error) {
		if err := CheckCephFSClient(); err != nil { // before anything else that this host may lack
			return newMount{}, err
		}
		if err := enterNamespaces(c.Cluster.Namespaces, "net"); err != nil {
			return newMount{}, err
		}
		return c.open()
	}, func(m newMount) error {
		if use == nil {
			return nil
		}
		return use(m.client)
	})
	if err != nil {
		return fmt.Errorf("mounting %s of the Ceph cluster %s at %s: %w", &c, c.Cluster.FSID, target, err)
	}
	return nil
}

// open makes the mount, which is nowhere yet.
func (c *CephFS) open() (newMount, error) {
	fs, err := fsopenCeph()
	if err != nil {
		return newMount{}, err
	}
	defer unix.Close(fs)
	if err := c.Cluster.Key.addToThread(); err != nil {
		return newMount{}, err
	}
	addresses, mode, err := c.Cluster.messengers()
	if err != nil {
		return newMount{}, err
	}
	attributes, options := attributesOf(c.Options)
	source := strings.Join(addresses, ",") + ":" + c.Path
	all := slices.Concat([]string{"source=" + source}, c.Cluster.options(mode), []string{"mds_namespace=" + c.FileSystem}, cephfsDefaults, options)
	fd, err := newDetached(fs, all, attributes)
	if err != nil {
		return newMount{}, joined(c.explain(err), kernelMessages(fs))
	}
	client, err := c.clientOf(fd)
	if err != nil {
		unix.Close(fd)
		return newMount{}, err
	}
	return newMount{fd, client}, nil
}

// clientOf asks a mount which cluster it is of, since the kernel mounts what the monitors have, whatever fsid it was given, and
// through which client.
func (c *CephFS) clientOf(mount int) (CephClient, error) {
	top, err := unix.Openat(mount, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return CephClient{}, fmt.Errorf("opening what was mounted: %w", err)
	}
	defer unix.Close(top)
	fsid, err := sized(func(b []byte) (int, error) { return unix.Fgetxattr(top, "ceph.cluster_fsid", b) })
	switch {
	case err != nil:
		return CephClient{}, fmt.Errorf("asking for the fsid of the cluster, which takes Linux 5.12 or later: %w", err)
	case strings.Trim(string(fsid), "\x00") != c.Cluster.FSID:
		return CephClient{}, fmt.Errorf("what answers at %s is another cluster, with the fsid %q", c.Cluster.at(), fsid)
	}
	id, err := sized(func(b []byte) (int, error) { return unix.Fgetxattr(top, cephFSClientID, b) })
	if err != nil {
		return CephClient{}, fmt.Errorf("asking as which client it is mounted: %w", err)
	}
	return newCephFSClient(c.Cluster.FSID, id), nil
}

// explain says what the kernel's number means here.
func (c *CephFS) explain(err error) error {
	switch {
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("the cluster has no such directory or file system: %w", err)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.EKEYREJECTED):
		return fmt.Errorf("the cluster refuses user %s: its key is wrong, or its capabilities do not allow this directory, as ceph fs authorize gives them: %w", c.Cluster.User, err)
	case errors.Is(err, unix.ETIMEDOUT):
		return fmt.Errorf("none of its monitors answers at %s: %w", c.Cluster.at(), err)
	case errors.Is(err, unix.EHOSTUNREACH): // the kernel says this of whatever fails before it knows the metadata servers
		if !c.Cluster.answers() {
			return fmt.Errorf("none of its monitors answers at %s: %w", c.Cluster.at(), err)
		}
		return fmt.Errorf("the cluster refuses user %s, whose key is wrong, or has no file system %s with an active metadata server (MDS), which ceph fs status shows; the kernel's log says which: %w", c.Cluster.User, c.FileSystem, err)
	}
	return fmt.Errorf("%w; the kernel's log may say more", err)
}

// cephFSClientID is the attribute of each file of a mount that names its client, as "client4305".
const cephFSClientID = "ceph.client_id"

// CephFSClient asks a mount, whose cluster may be dead, for the client of the kernel that it speaks through.
func CephFSClient(ctx context.Context, m *Mount) (CephClient, error) {
	id, err := cephClients.do(ctx, m.Device, "the cluster does not answer", func() ([]byte, error) {
		return sized(func(b []byte) (int, error) { return unix.Getxattr(m.Target, cephFSClientID, b) })
	})
	if err != nil {
		return CephClient{}, fmt.Errorf("asking %s as which client it is mounted: %w", m.Target, err)
	}
	fsid := ""
	for o := range strings.SplitSeq(m.Options, ",") {
		if given, is := strings.CutPrefix(o, "fsid="); is {
			fsid = given
		}
	}
	return newCephFSClient(fsid, id), nil
}

func newCephFSClient(fsid string, id []byte) CephClient {
	c := CephClient{FSID: fsid, ID: "client." + strings.TrimPrefix(string(id), "client")}
	c.Address = cephFSAddress(c)
	return c
}

var cephClients offThread[[]byte]
