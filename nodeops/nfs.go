package nodeops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// NFS is an exported directory on a server.
type NFS struct {
	Server  string // as it appears in the mount table
	Address string // IP address; no name is resolved
	Port    uint16 // 2049 if 0
	Path    string // starts with /

	// Options are mount options, one per element, which override the defaults.
	Options []string
	// Namespaces is a directory such as /proc/1/ns: the mount uses the network and the host name of its namespaces, and
	// works as long as that network exists. Empty means those of this process.
	Namespaces string
}

// nfsDefaults make clients wait for a server indefinitely: programs get no errors that a disk would not return, and no
// data is lost while a server is down. A dead connection is detected within about 30 s and replaced, since a server
// that moves leaves dead connections.
var nfsDefaults = []string{"hard", "timeo=100", "retrans=2"}

// nfsOptions are the allowed options. The others specify the server, or are for mount programs.
var nfsOptions = []string{
	"soft", "softerr", "hard", "timeo", "retrans", "nconnect", "max_connect", "rsize", "wsize", "ac", "noac", "actimeo",
	"acregmin", "acregmax", "acdirmin", "acdirmax", "cto", "nocto", "lookupcache", "rdirplus", "nordirplus", "sec",
	"softreval", "nosoftreval", "sharecache", "nosharecache", "write", "fsc", "nofsc", "sync", "async",
}

// CheckNFSOptions validates options for MountNFS.
func CheckNFSOptions(options []string) error {
	if err := CheckMountOptions(options); err != nil {
		return err
	}
	_, others := attributesOf(options)
	for _, o := range others {
		if key, _, _ := strings.Cut(o, "="); !slices.Contains(nfsOptions, key) {
			return fmt.Errorf("mount option %q is not one of a shared volume; these are: %s, and those of any mount", shorten(o), strings.Join(nfsOptions, ", "))
		}
	}
	return nil
}

// String returns the source as in the mount table.
func (n NFS) String() string {
	if strings.Contains(n.Server, ":") {
		return "[" + n.Server + "]:" + n.Path
	}
	return n.Server + ":" + n.Path
}

func (n NFS) check() error {
	switch {
	case net.ParseIP(n.Address) == nil:
		return fmt.Errorf("address %q: it must be an IP address", shorten(n.Address))
	case !filepath.IsAbs(n.Path) || filepath.Clean(n.Path) != n.Path:
		return fmt.Errorf("path %q: it must be absolute, without . or .. as a component", shorten(n.Path))
	case n.Server == "" || strings.ContainsFunc(n.Server, func(r rune) bool { return r <= ' ' || r == '/' || r == '\\' || r == ',' }):
		return fmt.Errorf("server %q: it must be a name or an address", shorten(n.Server))
	}
	return CheckNFSOptions(n.Options)
}

// MountNFS mounts a directory of an NFS 4.2 server. It needs no programs on the host, only a kernel with NFS, whose
// absence is an NFSClientError. It returns when ctx ends; a mount for which the kernel still waits does not appear at
// target, and a repeated call waits for it again.
func MountNFS(ctx context.Context, n NFS, target string) error {
	if err := n.check(); err != nil {
		return fmt.Errorf("mounting %s: %w", n, err)
	}
	what := fmt.Sprintf("%s (%s) with %q", n, n.Address, n.Options)
	err := detached.mountAt(ctx, target, what, func() (newMount, error) {
		if err := enterNFS(n.Namespaces); err != nil {
			return newMount{}, nfsClient(knowsNFS(), err)
		}
		fd, err := n.open()
		return newMount{fd: fd}, err
	}, nil)
	if err != nil {
		return fmt.Errorf("mounting %s at %s: %w", n, target, err)
	}
	return nil
}

// readAheadKiB is how far the kernel reads ahead on an NFS mount: four times the largest READ. Of its own accord it reads
// 128 KiB ahead, so that a stream waits for the network eight times as often as it must.
const readAheadKiB = 4096

// RaiseReadAhead makes the kernel read further ahead on the NFS mount at target, unless it is set to more. It does not
// need the server.
func RaiseReadAhead(target string) error {
	m, err := MountAt(target)
	if m == nil {
		return cmp.Or(err, fmt.Errorf("nothing is mounted at %s", target))
	}
	return raiseReadAhead(filepath.Join("/sys/class/bdi", m.Device))
}

func raiseReadAhead(bdi string) error {
	const name = "read_ahead_kb"
	if counter(bdi, name) >= readAheadKiB {
		return nil
	}
	return os.WriteFile(filepath.Join(bdi, name), strconv.AppendInt(nil, readAheadKiB, 10), 0)
}

var namespaceKinds = map[string]int{"net": unix.CLONE_NEWNET, "uts": unix.CLONE_NEWUTS}

// enterNamespaces moves the thread of the calling goroutine, which ends with it, into namespaces of a directory; an
// empty directory changes nothing.
func enterNamespaces(dir string, names ...string) error {
	if dir == "" {
		return nil
	}
	runtime.LockOSThread() // never unlocked, so that the thread ends
	for _, name := range names {
		kind := namespaceKinds[name]
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return hostForbidden(err)
		}
		err = unix.Setns(int(f.Fd()), kind)
		f.Close()
		if err != nil {
			return hostForbidden(fmt.Errorf("entering %s: %w", f.Name(), err))
		}
	}
	return nil
}

// open creates the mount, detached.
func (n NFS) open() (int, error) {
	fs, err := fsopenNFS()
	if err != nil {
		return -1, nfsClient(err, nil)
	}
	defer unix.Close(fs)
	attributes, options := attributesOf(n.Options)
	all := slices.Concat([]string{"source=" + n.String()}, nfsDefaults, options, []string{
		"vers=4.2", "proto=" + n.protocol(), "port=" + strconv.Itoa(n.port()), "addr=" + n.Address,
	})
	fd, err := newDetached(fs, all, attributes)
	if err != nil {
		return -1, explainNFS(fs, err)
	}
	return fd, nil
}

func (n NFS) protocol() string {
	if net.ParseIP(n.Address).To4() == nil {
		return "tcp6"
	}
	return "tcp"
}

func (n NFS) port() int {
	if n.Port == 0 {
		return 2049
	}
	return int(n.Port)
}

// explainNFS adds to an error what it means for an NFS mount.
func explainNFS(fs int, err error) error {
	said := kernelMessages(fs)
	switch {
	case errors.Is(err, unix.EPROTONOSUPPORT):
		err = fmt.Errorf("the server or this kernel does not speak NFS 4.2; the kernel needs its module nfsv4 and CONFIG_NFS_V4_2: %w", err)
	case errors.Is(err, unix.ENOENT):
		err = fmt.Errorf("the server does not have the volume, or not for this client: %w", err)
	}
	return joined(err, said)
}

func joined(err error, said []string) error {
	if len(said) > 0 {
		return fmt.Errorf("%w (%s)", err, strings.Join(said, "; "))
	}
	return err
}

// kernelMessages returns the kernel's messages about a failure.
func kernelMessages(fs int) (said []string) {
	for line := make([]byte, 1024); ; {
		n, failed := unix.Read(fs, line)
		if failed != nil || n <= 0 {
			break
		}
		said = append(said, strings.TrimSpace(string(line[:n])))
	}
	return said
}
