package ganesha

import (
	"fmt"
	"math"
	"net/netip"
	"path"
	"strconv"
	"strings"
)

// Export is an exported directory.
//
// A volume with a file system of its own cannot be reached by clients of other exports, if all UUIDs are distinct: of
// two file systems with the same UUID, Ganesha exports the first and refuses the second. The mount point of the file
// system must be on a ramfs: Ganesha takes the parent of an export's root as part of the export, and a client that
// forges a handle can look it up; only a ramfs has no file handles with which it could continue.
// Directories of one file system should be given by one mount: of two mounts, Ganesha keeps the first busy until its
// last export is removed.
type Export struct {
	ID         uint16   // 1 to 65535; part of every file handle
	Path       string   // the directory, without symlinks
	Pseudo     string   // path that clients mount: "/<name>"
	Filesystem string   // fsid, two numbers "a.b", that clients see; it must not change while a client has the export mounted
	Squash     Squash   // empty: NoRootSquash
	ReadOnly   bool     // no client may write
	Clients    []string // addresses and CIDRs; empty: the server's list
	AnonUID    *uint32  // user id of squashed clients; nil: 65534
	AnonGID    *uint32
}

// Squash selects the users whose ids are replaced by the anonymous ones.
type Squash string

const (
	NoRootSquash Squash = "no_root_squash" // none
	RootSquash   Squash = "root_squash"    // root
	AllSquash    Squash = "all_squash"     // all
)

const (
	longestPath = 4095
	longestName = 255
	mostClients = 8192
	pathRefuses = "\"'\\"
	nameAllows  = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
)

// Check validates an export, independently of others.
func (e *Export) Check() error {
	if e.ID == 0 {
		return fmt.Errorf("export ID 0 is the root's, which holds no data; give one from 1 to 65535")
	}
	for _, err := range []error{e.checkPath(), e.checkPseudo(), e.checkFilesystem(), e.checkSquash(), e.checkClients()} {
		if err != nil {
			return fmt.Errorf("export %d: %w", e.ID, err)
		}
	}
	return nil
}

func (e *Export) checkPath() error {
	switch {
	case !path.IsAbs(e.Path) || path.Clean(e.Path) != e.Path || e.Path == "/":
		return fmt.Errorf("path %q: it must be absolute, without . or .. or repeated slashes, and not the root; give the directory's real path", e.Path)
	case len(e.Path) > longestPath:
		return fmt.Errorf("path %.40q... has %d bytes, at most %d are allowed; give a shorter one", e.Path, len(e.Path), longestPath)
	}
	for _, c := range []byte(e.Path) {
		if c < ' ' || c > '~' || strings.IndexByte(pathRefuses, c) >= 0 {
			return fmt.Errorf("path %q: %q is not allowed in it, only printable ASCII other than quotes and backslashes; rename the directory or mount it elsewhere", e.Path, c)
		}
	}
	return nil
}

func (e *Export) checkPseudo() error {
	name, found := strings.CutPrefix(e.Pseudo, "/")
	if !found || name == "" || name == "." || name == ".." || len(name) > longestName || strings.Trim(name, nameAllows) != "" {
		return fmt.Errorf("pseudo path %q: it must be a slash and one name of at most %d letters, digits, dots, hyphens and underscores, such as /data", e.Pseudo, longestName)
	}
	return nil
}

// checkFilesystem reserves the numbers below 1.0 for the root.
func (e *Export) checkFilesystem() error {
	major, minor, found := strings.Cut(e.Filesystem, ".")
	a, errA := strconv.ParseInt(major, 10, 64)
	b, errB := strconv.ParseInt(minor, 10, 64)
	if !found || errA != nil || errB != nil || a < 1 || b < 0 || e.Filesystem != fmt.Sprintf("%d.%d", a, b) {
		return fmt.Errorf("file system ID %q: it must be two decimal numbers with a dot between them, the first at least 1 and neither above %d, such as 12.1; give each export one of its own", e.Filesystem, int64(math.MaxInt64))
	}
	return nil
}

func (e *Export) checkSquash() error {
	switch e.Squash {
	case "", NoRootSquash, RootSquash, AllSquash:
		return nil
	}
	return fmt.Errorf("squash %q: only %s, %s and %s are allowed; leave it empty for the first", e.Squash, NoRootSquash, RootSquash, AllSquash)
}

func (e *Export) checkClients() error {
	if len(e.Clients) > mostClients {
		return fmt.Errorf("%d clients are named, at most %d are allowed; name networks of them instead", len(e.Clients), mostClients)
	}
	for _, c := range e.Clients {
		if _, err := network(c); err != nil {
			return err
		}
	}
	return nil
}

// network parses an address or CIDR and clears the host bits. Ganesha parses only two digits of a prefix length.
func network(client string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(client)
	if a, notAddress := netip.ParseAddr(client); notAddress == nil && a.Zone() == "" {
		p, err = netip.PrefixFrom(a, a.BitLen()), nil
	}
	switch {
	case err != nil || p.Addr().Is4In6():
		return p, fmt.Errorf("client %.60q: only addresses and networks are allowed, without names and zones, such as 10.0.0.7, 10.0.0.0/8 or fd00::/8; an empty list allows all", client)
	case p.Bits() > 99 && !p.IsSingleIP():
		return p, fmt.Errorf("client %.60q: prefixes of IPv6 from /0 to /99 and single addresses are allowed; name a larger network, or its addresses", client)
	}
	return p.Masked(), nil
}
