package export

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops/ganesha"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/nfsclient"
)

// handle is a file handle of NFS-Ganesha in its parts: the export, the file system, and the kernel's handle of the file
// with its type.
type handle struct {
	flags  byte
	export uint16
	kind   byte // of the file system's id, with flags for the length of the type and for a missing file
	fsid   []byte
	file   []byte
}

const (
	handleVersion = 0x43
	shortType     = 0x40 // in kind: the type has one byte
	noFile        = 0x20 // in kind: the root of the file system
	wholeUUID     = 3    // in kind: what the id of the file system is made of
	fromStatfs    = 4
)

func (h handle) wire() []byte {
	inner := slices.Concat([]byte{h.kind}, h.fsid, h.file)
	return append([]byte{handleVersion, h.flags, byte(h.export >> 8), byte(h.export), byte(len(inner))}, inner...)
}

// known forges a handle with all that the host knows.
func known(t *testing.T, export uint16, kind byte, fsid []byte, path string) handle {
	t.Helper()
	of, _, err := unix.NameToHandleAt(unix.AT_FDCWD, path, 0)
	check.OK(t, err)
	return handle{export: export, kind: kind, fsid: fsid, file: append([]byte{byte(of.Type())}, of.Bytes()...)}
}

// sight is what a stranger can read with a handle.
type sight struct {
	there bool     // the server knows the file
	shown []string // names and contents
}

func (s *sight) of(what string) bool { return strings.Contains(strings.Join(s.shown, "\n"), what) }

// How far a stranger goes from a handle: steps up and down, and names of a directory.
const (
	farthest = 5
	widest   = 8
)

// look tries everything near a handle, in one compound each time: what a server checks for a handle that it gets, it
// may not check for a file that it looks up.
func (s *stranger) look(h []byte) (seen sight) {
	s.t.Helper()
	visited := map[string]bool{}
	for ways := [][]nfsclient.Op{{nfsclient.PutHandle(h)}}; len(ways) > 0; ways = ways[1:] {
		way := slices.Clip(ways[0])
		var at, content []byte
		var names []string
		var id uint64
		if s.Ask(append(way, nfsclient.GetAttr(&id), nfsclient.GetHandle(&at))...) != nfsclient.StatusOK || visited[string(at)] {
			continue
		}
		seen.there, visited[string(at)] = true, true
		s.Ask(append(way, nfsclient.ReadFile(&content))...)
		s.Ask(append(way, nfsclient.ReadDir(&names))...)
		seen.shown = append(append(seen.shown, names...), string(content))
		if len(way) > farthest {
			continue
		}
		for _, name := range append(names[:min(len(names), widest)], "..", othersName, secretName) {
			ways = append(ways, append(way, nfsclient.LookUp(name)))
		}
		ways = append(ways, append(way, nfsclient.LookUpParent()))
	}
	return seen
}

// harm tries to change something.
func (s *stranger) harm(h []byte) {
	s.t.Helper()
	s.Ask(nfsclient.PutHandle(h), nfsclient.WriteFile("by a stranger"))
	s.Ask(nfsclient.PutHandle(h), nfsclient.Remove(secretName))
	s.Ask(nfsclient.PutHandle(h), nfsclient.LookUp(secretName), nfsclient.WriteFile("by a stranger"))
}

const (
	ownName, othersName = "own", "others"
	secretName, secret  = "the-secret-file", "what the others keep to themselves"
)

// neighbours are two volumes of one server, and a stranger who may use one of them. It could use the other before, and
// still has those handles.
type neighbours struct {
	*server
	*stranger
	address       string
	own, others   ganesha.Export
	learnt, mayBe map[string]handle // file handles of the other volume, and of its own
}

func newNeighbours(s *server, fsType string) *neighbours {
	s.Helper()
	s.end() // first, since a process that starts inherits locks for a moment
	nfs, address := serve(s.T)
	s.serveBy(nfs)
	n := &neighbours{server: s, address: address}
	for _, name := range []string{ownName, othersName} { // what NFS-Ganesha finds below both belongs to the first
		s.create(name, func(spec *backend.VolumeSpec) { spec.FSType = fsType })
	}
	n.own, n.others = s.record.exports(s.T)["/"+ownName], s.record.exports(s.T)["/"+othersName]
	for _, dir := range []string{n.others.Path, filepath.Join(n.others.Path, "inner")} {
		err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, secretName), []byte(secret), 0o600))
		check.OK(s.T, errors.Join(err, os.MkdirAll(filepath.Join(n.own.Path, "inner"), 0o755)))
	}
	n.stranger = newStranger(s.T, address, nil)
	n.mayBe = n.walk(n.own, "", "inner")
	n.learnt = n.walk(n.others, "", "inner", secretName, "inner/"+secretName)
	hidden := n.others
	hidden.Clients = []string{"10.9.9.9"}
	check.OK(s.T, nfs.Put(context.Background(), hidden))
	return n
}

// walk does what every client does, and checks that the handles it gets are those that it could have forged.
func (n *neighbours) walk(e ganesha.Export, paths ...string) map[string]handle {
	n.Helper()
	found := map[string]handle{}
	for _, path := range paths {
		way := []nfsclient.Op{nfsclient.PutRoot(), nfsclient.LookUp(strings.TrimPrefix(e.Pseudo, "/"))}
		for name := range strings.SplitSeq(path, "/") {
			if name != "" {
				way = append(way, nfsclient.LookUp(name))
			}
		}
		var given []byte
		if status := n.Ask(append(way, nfsclient.GetHandle(&given))...); status != nfsclient.StatusOK || len(given) < 22 {
			n.Fatalf("the handle of %s/%s is %x, status %d", e.Pseudo, path, given, status)
		}
		fsid := given[6:22]
		if given[5] == shortType|fromStatfs {
			fsid = given[6:14]
		}
		made := known(n.T, e.ID, given[5], fsid, filepath.Join(e.Path, path))
		if !bytes.Equal(made.wire(), given) {
			n.Fatalf("the handle of %s/%s is %x, and not %x: NFS-Ganesha makes them in another way than this test", e.Pseudo, path, given, made.wire())
		}
		found[path] = made
	}
	return found
}

// forgeries are handles that no server has issued, with their meanings.
func (n *neighbours) forgeries() map[string]handle {
	all := map[string]handle{}
	mine := n.mayBe[""]
	for path, h := range n.learnt {
		for _, export := range []uint16{n.others.ID, n.own.ID, 0, 999, 65535} {
			other := h
			other.export = export
			all[fmt.Sprintf("/%s of the others as of export %d", path, export)] = other
			other.fsid = mine.fsid
			all[fmt.Sprintf("/%s of the others as of export %d and of the own file system", path, export)] = other
		}
		for bit := range 8 {
			other := h
			other.export, other.flags = n.own.ID, 1<<bit
			all[fmt.Sprintf("/%s of the others with flag %x", path, other.flags)] = other
			other.flags, other.kind = 0, h.kind^1<<bit
			all[fmt.Sprintf("/%s of the others with kind %x", path, other.kind)] = other
		}
	}
	for path, h := range n.mayBe {
		for _, more := range []int{1, 2, 3, 4, 8, 12} {
			other := h
			other.file = slices.Concat(h.file, make([]byte, more))
			all[fmt.Sprintf("own /%s with %d bytes more", path, more)] = other
		}
		for _, kind := range []byte{0x01, 0x02, 0x81, 0x82, 0x4e, 0x4f} {
			other := h
			other.file = slices.Concat([]byte{kind}, h.file[1:], h.file[1:])
			all[fmt.Sprintf("own /%s as of type %x", path, kind)] = other
		}
	}
	root := n.learnt[""]
	all["no file of the own"] = handle{export: n.own.ID, kind: noFile | root.kind&^shortType, fsid: mine.fsid}
	all["no file of the others"] = handle{export: n.own.ID, kind: noFile | root.kind&^shortType, fsid: root.fsid}
	for what, path := range map[string]string{
		"pool": n.pool.Path, "directory above the pool": filepath.Dir(n.pool.Path), "directory of all exports": filepath.Dir(n.own.Path),
		"root of the host": "/", "own directory on the host": n.own.Path, "others' directory on the host": n.others.Path,
	} {
		if of, _, err := unix.NameToHandleAt(unix.AT_FDCWD, path, 0); err != nil || len(of.Bytes()) > 40 || of.Type() > 255 {
			continue // this file system has none
		}
		for _, export := range []uint16{0, n.own.ID, n.others.ID} {
			for whose, fsid := range map[string][]byte{"the own": mine.fsid, "the others'": root.fsid, "no": make([]byte, len(root.fsid))} {
				all[fmt.Sprintf("%s as of export %d and %s file system", what, export, whose)] = known(n.T, export, root.kind, fsid, path)
			}
			kind, fsid := identityOf(n.T, path)
			all[fmt.Sprintf("%s as of export %d and its own file system", what, export)] = known(n.T, export, kind, fsid, path)
		}
	}
	return all
}

// identityOf returns how NFS-Ganesha identifies the file system of a path: by UUID, or by statfs.
func identityOf(t *testing.T, path string) (kind byte, fsid []byte) {
	t.Helper()
	var st unix.Stat_t
	var of unix.Statfs_t
	check.OK(t, errors.Join(unix.Stat(path, &st), unix.Statfs(path, &of)))
	device := fmt.Sprintf("/dev/block/%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	out, _ := exec.Command("blkid", "-p", "-s", "UUID", "-o", "value", device).Output() // it may have none
	if uuid, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(string(out)), "-", "")); err == nil && len(uuid) == 16 {
		return shortType | wholeUUID, uuid
	}
	fsid = binary.LittleEndian.AppendUint32(nil, uint32(of.Fsid.Val[0]))
	return shortType | fromStatfs, binary.LittleEndian.AppendUint32(fsid, uint32(of.Fsid.Val[1]))
}

// guesses are handles similar to a valid one, of which a stranger would have to try very many.
func guesses(of handle, how int) (all []handle) {
	random := rand.New(rand.NewPCG(1, 2))
	for range how {
		h := of
		h.fsid, h.file = slices.Clone(of.fsid), slices.Clone(of.file)
		for range 1 + random.IntN(3) {
			part := h.file
			if random.IntN(4) == 0 {
				part = h.fsid
			}
			part[random.IntN(len(part))] ^= 1 << random.IntN(8)
		}
		all = append(all, h)
	}
	return all
}

// unharmed fails unless the other volume is unchanged.
func (n *neighbours) unharmed() {
	n.Helper()
	for _, dir := range []string{n.others.Path, filepath.Join(n.others.Path, "inner")} {
		if got, err := os.ReadFile(filepath.Join(dir, secretName)); err != nil || string(got) != secret {
			n.Errorf("the others' file is %q, %v", got, err)
		}
	}
}

// reached returns the handles by which a stranger can read another volume; there should be none.
func (n *neighbours) reached(all map[string]handle) (by []string) {
	n.Helper()
	for what, h := range all {
		if seen := n.look(h.wire()); seen.of(secretName) || seen.of(secret) {
			by = append(by, fmt.Sprintf("%s: %x", what, h.wire()))
		}
	}
	slices.Sort(by)
	return by
}
