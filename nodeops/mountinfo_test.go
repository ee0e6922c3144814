package nodeops

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

func TestMountTable_IsReadAsTheKernelWritesIt(t *testing.T) {
	table := `22 27 0:21 / /proc rw,nosuid shared:5 - proc proc rw
broken line
36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 propagate_from:2 - ext3 /dev/root rw,errors=continue
40 35 7:1 /a\040b /srv/x\134y\011z ro,relatime - xfs /dev/loop1 rw,nouuid
41 35 7:2 / /frozen rw - btrfs /dev/loop2 ro
42 35 0:50 / /nameless rw - tmpfs  rw
43 35 0:51 / /odd\ rw - tmpfs none rw
44 35 0:52 / /odd` + "\v\u2003" + ` rw - tmpfs none rw
`
	want := []Mount{
		{ID: "22", Device: "0:21", Root: "/", Target: "/proc", FSType: "proc", Source: "proc", Options: "rw"},
		{ID: "36", Device: "98:0", Root: "/mnt1", Target: "/mnt2", FSType: "ext3", Source: "/dev/root", Options: "rw,errors=continue"},
		{ID: "40", Device: "7:1", Root: "/a b", Target: "/srv/x\\y\tz", FSType: "xfs", Source: "/dev/loop1", Options: "rw,nouuid", ReadOnly: true},
		{ID: "41", Device: "7:2", Root: "/", Target: "/frozen", FSType: "btrfs", Source: "/dev/loop2", Options: "ro", ReadOnly: true, Failed: true},
		{ID: "42", Device: "0:50", Root: "/", Target: "/nameless", FSType: "tmpfs", Options: "rw"},
		{ID: "43", Device: "0:51", Root: "/", Target: `/odd\`, FSType: "tmpfs", Source: "none", Options: "rw"},
		{ID: "44", Device: "0:52", Root: "/", Target: "/odd\v\u2003", FSType: "tmpfs", Source: "none", Options: "rw"},
	}
	if got := parseMounts(table); !slices.Equal(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}

func TestMountInfo_TopmostMountIsFoundAlsoThroughLinksAndOddNames(t *testing.T) {
	requireRoot(t)
	dir := filepath.Join(t.TempDir(), "a b\\c\td\ne")
	target := filepath.Join(dir, "t")
	check.OK(t, os.MkdirAll(target, 0o755))
	if m, err := MountAt(target); m != nil || err != nil {
		t.Fatalf("nothing is mounted, got %+v, %v", m, err)
	}
	t.Cleanup(func() { unmountAll(t, target) })
	for _, source := range []string{"lower", "upper"} {
		check.OK(t, unix.Mount(source, target, "tmpfs", unix.MS_RDONLY, ""))
	}
	link := filepath.Join(t.TempDir(), "link")
	check.OK(t, os.Symlink(dir, link))
	for _, path := range []string{target, target + "/", filepath.Join(link, "t")} {
		m, err := MountAt(path)
		if err != nil || m == nil || m.Source != "upper" || !m.ReadOnly || m.FSType != "tmpfs" {
			t.Errorf("%q: %+v, %v", path, m, err)
		}
	}
	for _, path := range []string{dir, filepath.Join(target, "none"), "/no/such/place"} {
		if m, err := MountAt(path); m != nil || err != nil {
			t.Errorf("%q: %+v, %v, want nothing", path, m, err)
		}
	}
}

func FuzzParseMounts(f *testing.F) {
	f.Add("    \\0  -   ")
	f.Add(`40 35 7:1 /a\040b /srv/x\134y ro - xfs /dev/loop1 rw`)
	f.Add(`1 2 3 4 5\ 6 - 7 8 9`)
	f.Add(`\777 \400 \08`)
	f.Fuzz(func(t *testing.T, table string) {
		for _, m := range parseMounts(table + "\n22 27 0:21 / /proc rw - proc proc rw\n") {
			if m.Target == "/proc" && m.FSType == "proc" {
				return
			}
		}
		t.Error("an odd line hid the one after it")
	})
}

func TestOrphan_IsTheBindOfANodeThatIsGone(t *testing.T) {
	hostfs.RequireRoot(t)
	node, target := fmt.Sprintf("/dev/holdfast-test-%d", os.Getpid()), filepath.Join(t.TempDir(), "disk")
	check.OK(t, errors.Join(unix.Mknod(node, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 1<<19))), os.WriteFile(target, nil, 0o600)))
	t.Cleanup(func() { _ = os.Remove(node) })
	check.OK(t, Bind(t.Context(), node, target, false, nil))
	t.Cleanup(func() {
		check.Report(t, Unmount(context.WithoutCancel(t.Context()), target))
	})
	is := func() bool {
		m, err := MountAt(target)
		if err != nil || m == nil {
			t.Fatalf("%v, %v", m, err)
		}
		return IsOrphan(m)
	}
	if is() {
		t.Error("the bind of a node that is there is an orphan")
	}
	check.OK(t, os.Remove(node))
	if !is() {
		t.Error("the bind of a node that is gone is no orphan")
	}
}
