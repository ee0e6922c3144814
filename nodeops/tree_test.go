package nodeops

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// An access control list in the kernel's format: owner rw, user 1234 r, group r, mask r, others nothing.
const accessList = "\x02\x00\x00\x00" +
	"\x01\x00\x06\x00\xff\xff\xff\xff" + "\x02\x00\x04\x00\xd2\x04\x00\x00" + "\x04\x00\x04\x00\xff\xff\xff\xff" +
	"\x10\x00\x04\x00\xff\xff\xff\xff" + "\x20\x00\x00\x00\xff\xff\xff\xff"

// capability lets an executable bind ports below 1024.
const capability = "\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"

// plant makes a tree with every kind of entry.
func plant(t testing.TB, top string) {
	t.Helper()
	at := func(name string) string { return filepath.Join(top, name) }
	must := func(errs ...error) {
		t.Helper()
		check.OK(t, errors.Join(errs...))
	}
	must(os.MkdirAll(at("dir/sub/empty"), 0o755), os.Chown(at("dir/sub"), 1000, 2000), os.Chown(top, 7, 8))
	must(os.Chmod(at("dir/sub"), 0o710|fs.ModeSetgid|fs.ModeSticky), os.Chmod(top, 0o777|fs.ModeSticky))
	write(t, at("file"), "content")
	must(os.Chown(at("file"), 1000, 2000), os.Chmod(at("file"), 0o751|fs.ModeSetuid))
	must(unix.Setxattr(at("file"), "user.name", []byte("value"), 0), unix.Setxattr(at("file"), "user.empty", nil, 0))
	must(unix.Setxattr(at("file"), "security.capability", []byte(capability), 0), unix.Setxattr(at("file"), "trusted.x", []byte("y"), 0))
	write(t, at("listed"), "")
	must(unix.Setxattr(at("listed"), "system.posix_acl_access", []byte(accessList), 0))
	must(unix.Setxattr(at("dir"), "system.posix_acl_default", []byte(accessList), 0), unix.Setxattr(at("dir"), "user.dir", []byte("d"), 0))
	write(t, at("-odd \n name\xff"), "odd")
	must(os.Link(at("file"), at("dir/hard")), os.Link(at("file"), at("dir/sub/harder")))
	must(os.Symlink("/etc/passwd", at("link")), os.Lchown(at("link"), 5, 6), os.Symlink("file", at("dir/dangling")))
	must(unix.Setxattr(at("dir/sub/empty"), "user.e", []byte(strings.Repeat("long", 400)), 0))
	must(unix.Mkfifo(at("fifo"), 0o640), unix.Mknod(at("null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))), unix.Mknod(at("disk"), unix.S_IFBLK|0o600, int(unix.Mkdev(7, 1))))
	must(unix.Mknod(at("socket"), unix.S_IFSOCK|0o600, 0), os.Link(at("null"), at("null2")))
	holey(t, at("sparse"), 256*mib)
	for i := range 1000 {
		write(t, at(fmt.Sprintf("dir/many-%d", i)), fmt.Sprint(i))
	}
	var i int64
	must(filepath.WalkDir(top, func(path string, _ fs.DirEntry, err error) error {
		i++
		ts := []unix.Timespec{{Sec: 1e9 + i, Nsec: 123456789}, {Sec: 2e9 + i, Nsec: 987654321}}
		return errors.Join(err, unix.UtimesNanoAt(unix.AT_FDCWD, path, ts, unix.AT_SYMLINK_NOFOLLOW))
	}))
}

// describeTree describes all that a copy must keep, one line per entry.
func describeTree(t testing.TB, top string) []string {
	t.Helper()
	var lines []string
	first := map[uint64]string{}
	check.OK(t, filepath.WalkDir(top, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		name, _ := filepath.Rel(top, path)
		line := fmt.Sprintf("%q mode %o owner %d:%d modified %d.%d", name, st.Mode, st.Uid, st.Gid, st.Mtim.Sec, st.Mtim.Nsec)
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			line += fmt.Sprintf(" size %d device %d names %d", st.Size, st.Rdev, st.Nlink)
			if _, again := first[st.Ino]; !again {
				first[st.Ino] = name
			}
			line += fmt.Sprintf(" is %q", first[st.Ino])
		}
		if st.Mode&unix.S_IFMT == unix.S_IFLNK {
			to, err := os.Readlink(path)
			lines = append(lines, line+" to "+to)
			return err
		}
		line += " " + xattrs(t, path)
		if st.Mode&unix.S_IFMT == unix.S_IFREG {
			line += fmt.Sprintf(" accessed %d.%d holds %q", st.Atim.Sec, st.Atim.Nsec, peek(t, path))
		}
		lines = append(lines, line)
		return nil
	}))
	return lines
}

// peek reads the start of a file without changing its access time.
func peek(t testing.TB, path string) string {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOATIME, 0)
	check.OK(t, err)
	defer f.Close()
	b := make([]byte, 100)
	n, err := f.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return string(b[:n])
}

func xattrs(t testing.TB, path string) string {
	t.Helper()
	names := make([]byte, 4096)
	n := check.Got(unix.Llistxattr(path, names))(t)
	var all []string
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names[:n]), "\x00"), "\x00") {
		value := make([]byte, 4096)
		n, err := unix.Lgetxattr(path, name, value)
		if name != "" && err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%s=%q", name, value[:max(n, 0)]))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func TestCopyTree_CopyEqualsItsSource(t *testing.T) {
	requireRoot(t)
	for fstype, size := range fileSystems {
		t.Run(fstype, func(t *testing.T) {
			dir := newFS(t, fstype, size)
			src, dst := filepath.Join(dir, "src"), filepath.Join(dir, "dst")
			for _, d := range []string{src, dst} {
				check.OK(t, os.Mkdir(d, 0o700))
			}
			plant(t, src)
			want := describeTree(t, src)
			syncAt(t, dir)
			check.OK(t, CopyTree(t.Context(), dst, src))
			got := describeTree(t, dst)
			for i := range max(len(got), len(want)) {
				if i >= len(got) || i >= len(want) || got[i] != want[i] {
					t.Fatalf("first difference:\ngot  %s\nwant %s", got[min(i, len(got)-1)], want[min(i, len(want)-1)])
				}
			}
			if after := describeTree(t, src); !slices.Equal(after, want) {
				t.Error("copying changed the source")
			}
			syncAt(t, dir)
			if taken := allocated(t, filepath.Join(dst, "sparse")); taken > 2*mib {
				t.Errorf("the sparse file takes %d bytes", taken)
			}
			a, b := open(t, filepath.Join(src, "sparse")), open(t, filepath.Join(dst, "sparse"))
			sameContent(t, a, b)
		})
	}
}

func open(t testing.TB, path string) *os.File {
	t.Helper()
	f := check.Got(os.Open(path))(t)
	t.Cleanup(func() { f.Close() })
	return f
}

func TestCopyTree_UsesReflinksWherePossible(t *testing.T) {
	dir := newFS(t, "xfs", fileSystems["xfs"])
	src, dst := filepath.Join(dir, "src"), filepath.Join(dir, "dst")
	check.OK(t, errors.Join(os.Mkdir(src, 0o755), os.Mkdir(dst, 0o755)))
	write(t, filepath.Join(src, "large"), strings.Repeat("x", 150<<20)) // another one would not fit
	check.Report(t, CopyTree(t.Context(), dst, src))
}

func TestCopyTree_StaysOnItsFileSystem(t *testing.T) {
	requireRoot(t)
	src, dst := t.TempDir(), t.TempDir()
	inner, bound := filepath.Join(src, "inner"), filepath.Join(src, "bound")
	check.OK(t, os.Mkdir(inner, 0o755))
	write(t, bound, "")
	t.Cleanup(func() { unmountAll(t, inner); unmountAll(t, bound) })
	check.OK(t, errors.Join(unix.Mount("none", inner, "tmpfs", 0, ""), unix.Mount("/dev/null", bound, "", unix.MS_BIND, "")))
	write(t, filepath.Join(inner, "foreign"), "x")
	check.OK(t, CopyTree(t.Context(), dst, src))
	if got := names(t, dst); !slices.Equal(got, []string{"inner"}) {
		t.Errorf("copied %v", got)
	}
	if got := names(t, filepath.Join(dst, "inner")); len(got) != 0 {
		t.Errorf("copied %v of another file system", got)
	}
}

func TestCopyTree_NeitherFollowsLinksNorOverwrites(t *testing.T) {
	requireRoot(t)
	src, dst, elsewhere := t.TempDir(), t.TempDir(), t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	check.OK(t, os.Symlink(elsewhere, link))
	write(t, filepath.Join(src, "name"), "new")
	for _, pair := range [][2]string{{link, src}, {dst, link}} {
		if err := CopyTree(t.Context(), pair[0], pair[1]); err == nil {
			t.Errorf("%v: a link was followed", pair)
		}
	}
	write(t, filepath.Join(dst, "name"), "old")
	if err := CopyTree(t.Context(), dst, src); !errors.Is(err, fs.ErrExist) || read(t, filepath.Join(dst, "name")) != "old" {
		t.Errorf("got %v, want an error and the old file", err)
	}
}

func TestCopyTree_IntoItselfIsRefused(t *testing.T) {
	requireRoot(t)
	src := t.TempDir()
	dst := filepath.Join(src, "dst")
	check.OK(t, os.Mkdir(dst, 0o755))
	if err := CopyTree(t.Context(), dst, src); err == nil || !strings.Contains(err.Error(), "copy itself") {
		t.Errorf("got %v", err)
	}
}

func TestCopyTree_TooDeepIsRefusedBeforeDescriptorsRunOut(t *testing.T) {
	requireRoot(t)
	src, dst := t.TempDir(), t.TempDir()
	deepen(t, src, maxDepth+1)
	for verb, err := range map[string]error{"copy": CopyTree(t.Context(), dst, src), "group": SetGroup(t.Context(), src, 4321)} {
		if err == nil || !strings.Contains(err.Error(), "deeper than") {
			t.Errorf("%s: %.200v", verb, err)
		}
	}
}

func TestCopyTree_IsCancelled(t *testing.T) {
	requireRoot(t)
	src, dst := t.TempDir(), t.TempDir()
	for i := range 10 {
		check.OK(t, os.Symlink("x", filepath.Join(src, fmt.Sprint(i))))
	}
	if err := CopyTree(&endsAfter{t.Context(), 5}, dst, src); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's end", err)
	}
	if got := len(names(t, dst)); got >= 10 {
		t.Errorf("%d files were copied", got)
	}
}
