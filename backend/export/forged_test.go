package export

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/nfsclient"
)

func TestForgedHandles_ReachNoOtherImage(t *testing.T) {
	requireGanesha(t)
	guessed := 100
	if hostfs.All() {
		guessed = 5000
	}
	for _, fsType := range []string{"xfs", "ext4", "btrfs"} {
		t.Run(fsType, func(t *testing.T) {
			n := newNeighbours(newServer(t, "image", hostfs.XFS, 8<<30), fsType)
			all := n.forgeries()
			for i, h := range guesses(n.learnt[secretName], guessed) {
				h.export = n.own.ID
				all[fmt.Sprint("guess ", i)] = h
			}
			for _, by := range n.reached(all) {
				t.Errorf("a stranger sees the others' files by %s", by)
			}
			for _, h := range all {
				n.harm(h.wire())
			}
			n.unharmed()
		})
	}
}

// A handle may crash NFS-Ganesha, such as one with the type of a file and no file. It must not do more.
func TestForgedHandle_ServerKilledByOneReturnsWithAllVolumes(t *testing.T) {
	requireGanesha(t)
	n := newNeighbours(newServer(t, "image", hostfs.XFS, 8<<30), "xfs")
	deadly := n.mayBe[""]
	deadly.kind |= noFile
	deadly.file = nil
	var names []string
	if _, err := n.Try(nfsclient.PutHandle(deadly.wire()), nfsclient.ReadDir(&names)); err == nil {
		t.Log("it came through")
	}
	n.stranger = newStranger(t, n.address, nil)
	n.mayBe = n.walk(n.own, "", "inner")
	n.unharmed()
}

// An earlier release mounted volumes on a directory that clients can reach.
func TestVolume_MountedEarlierIsMountedWhereNoClientGetsFurther(t *testing.T) {
	s := onXFS(t)
	v := s.create("a")
	s.write(v, []byte("one"))
	s.end()
	image, err := filepath.Glob(filepath.Join(s.pool.Path, "*", "*", "image"))
	target := filepath.Join(s.work, "exports", "a")
	if err := errors.Join(err, os.MkdirAll(target, 0o700)); err != nil || len(image) != 1 {
		t.Fatalf("images are %v, %v", image, err)
	}
	if out, err := exec.Command("mount", "-o", "loop", image[0], target).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s.begin()
	if m, err := nodeops.MountAt(s.ExportsDir); err != nil || m == nil || m.FSType != fenceType {
		t.Errorf("beneath the volumes is %+v, %v", m, err)
	}
	s.served(v.ID)
	if got := s.read(v); string(got) != "one" || len(s.loops()) != 1 {
		t.Errorf("it holds %q, attached to %v", got, s.loops())
	}
}

// A client that forges handles reaches all directories of a file system: the documentation says so, and this test shows
// it.
func TestForgedHandlesReachOtherDirectoriesOfTheFileSystem(t *testing.T) {
	requireGanesha(t)
	for _, k := range []hostfs.Kind{hostfs.Btrfs, hostfs.XFSQuota, hostfs.Ext4Quota} {
		t.Run(k.Name, func(t *testing.T) {
			n := newNeighbours(newServer(t, "directory", k, 4<<30), "")
			by := n.reached(n.forgeries())
			t.Logf("a stranger sees the others' files by %d handles, among them\n%s", len(by), strings.Join(by, "\n"))
			if len(by) == 0 {
				t.Error("a stranger does not see the others' files: correct docs/nfs-servers.md")
			}
		})
	}
}

// Without forged handles: nothing that a client gets leads out of its volume.
func TestVolume_CannotBeEscaped(t *testing.T) {
	requireGanesha(t)
	n := newNeighbours(newServer(t, "image", hostfs.XFS, 8<<30), "xfs")
	check.OK(t, os.Symlink("../"+othersName, filepath.Join(n.own.Path, "link")))
	var disk unix.Stat_t // of the other volumes; root on a client can create a device node with its number
	check.OK(t, errors.Join(unix.Stat(n.others.Path, &disk), unix.Mknod(filepath.Join(n.own.Path, "device"), unix.S_IFBLK|0o666, int(disk.Dev))))
	name := func(path string) (way []nfsclient.Op) {
		way = []nfsclient.Op{nfsclient.PutRoot()}
		for part := range strings.SplitSeq(path, "/") {
			way = append(way, nfsclient.LookUp(part))
		}
		return way
	}
	own := slices.Clip([]nfsclient.Op{nfsclient.PutRoot(), nfsclient.LookUp(ownName)})
	for what, way := range map[string][]nfsclient.Op{
		"its name": name(othersName), "its place on the host": name(strings.TrimPrefix(n.others.Path, "/")),
		"the pool": name(strings.TrimPrefix(n.pool.Path, "/")), "..": append(own, nfsclient.LookUp(".."), nfsclient.LookUp(othersName)),
		"a name with ..": {nfsclient.PutRoot(), nfsclient.LookUp(ownName + "/../" + othersName)}, "the parent": append(own, nfsclient.LookUpParent(), nfsclient.LookUp(othersName)),
		"the parent's parent": append(own, nfsclient.LookUpParent(), nfsclient.LookUpParent(), nfsclient.LookUp(othersName)),
		"a link":              append(own, nfsclient.LookUp("link"), nfsclient.LookUp(secretName)), "a device": append(own, nfsclient.LookUp("device")),
		"what is below": append(own, nfsclient.LookUp("inner"), nfsclient.LookUpParent(), nfsclient.LookUpParent(), nfsclient.LookUp(othersName)),
	} {
		var names []string
		var content []byte
		for _, see := range [][]nfsclient.Op{{nfsclient.ReadDir(&names)}, {nfsclient.ReadFile(&content)}, {nfsclient.LookUp(secretName), nfsclient.ReadFile(&content)}} {
			if status := n.Ask(slices.Concat(way, see)...); status == nfsclient.StatusOK || len(names) > 0 || len(content) > 0 {
				t.Errorf("by %s a stranger sees %q and %q, answered %d", what, names, content, status)
			}
		}
	}
	var at []byte
	n.Must(n.Ask(append(own, nfsclient.GetHandle(&at))...))
	if seen := n.look(at); !slices.Contains(seen.shown, "link") || seen.of(secret) || seen.of(secretName) || slices.Contains(seen.shown, othersName) {
		t.Errorf("from its own volume a stranger sees %q", seen.shown)
	}
}
