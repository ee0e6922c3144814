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
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
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
	must := func(errs ...error) { check.OK(t, errors.Join(errs...)) }
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

func sameLines(t testing.TB, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("first difference:\ngot  %s\nwant %s", got[min(i, len(got)-1)], want[min(i, len(want)-1)])
		}
	}
}

// peek reads the start of a file without changing its access time.
func peek(t testing.TB, path string) string {
	t.Helper()
	f := check.Got(os.OpenFile(path, os.O_RDONLY|unix.O_NOATIME, 0))(t)
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
	eachFS(t, func(t *testing.T, fstype string, size int64) {
		dir := newFS(t, fstype, size)
		src, dst := filepath.Join(dir, "src"), filepath.Join(dir, "dst")
		for _, d := range []string{src, dst} {
			check.OK(t, os.Mkdir(d, 0o700))
		}
		plant(t, src)
		want := describeTree(t, src)
		syncAt(t, dir)
		check.OK(t, CopyTree(t.Context(), dst, src))
		sameLines(t, describeTree(t, dst), want)
		sameLines(t, describeTree(t, src), want)
		syncAt(t, dir)
		if taken := allocated(t, filepath.Join(dst, "sparse")); taken > 2*mib {
			t.Errorf("the sparse file takes %d bytes", taken)
		}
		a, b := open(t, filepath.Join(src, "sparse")), open(t, filepath.Join(dst, "sparse"))
		sameContent(t, a, b)
	})
}

func TestCopyTree_CopyLacksTheDefaultAccessListOfItsDirectory(t *testing.T) {
	dir := newFS(t, "xfs", fileSystems["xfs"])
	src, below := filepath.Join(dir, "src"), filepath.Join(dir, "below")
	check.OK(t, errors.Join(os.MkdirAll(filepath.Join(src, "sub"), 0o755), os.Mkdir(below, 0o755)))
	write(t, filepath.Join(src, "sub/file"), "content")
	command(t, "setfacl", "-d", "-m", "u:1234:rwx", below)
	dst := filepath.Join(below, "dst")
	check.OK(t, os.Mkdir(dst, 0o755))
	want := describeTree(t, src)
	check.OK(t, CopyTree(t.Context(), dst, src))
	sameLines(t, describeTree(t, dst), want)
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
	check.Same(t, names(t, dst), []string{"inner"})
	check.Same(t, names(t, filepath.Join(dst, "inner")), nil)
}

func TestCopyTree_NeitherFollowsLinksNorOverwritesNorCopiesIntoItself(t *testing.T) {
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
	check.Fails(t, CopyTree(t.Context(), dst, src), fs.ErrExist)
	holds(t, filepath.Join(dst, "name"), "old")
	inside := filepath.Join(src, "dst")
	check.OK(t, os.Mkdir(inside, 0o755))
	check.Fails(t, CopyTree(t.Context(), inside, src), nil, "copy itself")
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
	check.Fails(t, CopyTree(&endsAfter{t.Context(), 5}, dst, src), context.Canceled)
	if got := len(names(t, dst)); got >= 10 {
		t.Errorf("%d files were copied", got)
	}
}

// deepen makes nested directories, deeper than the longest path.
func deepen(t testing.TB, top string, depth int) { deepest(t, top, "d", depth).Close() }

// deepest returns the innermost one.
func deepest(t testing.TB, top, name string, depth int) *os.File {
	t.Helper()
	dir := check.Got(os.Open(top))(t)
	for range depth {
		check.OK(t, unix.Mkdirat(int(dir.Fd()), name, 0o755))
		next := check.Got(openAt(dir, name, unix.O_RDONLY|unix.O_DIRECTORY, 0))(t)
		dir.Close()
		dir = next
	}
	return dir
}

// linkedFiles makes files with two names each, at the end of a long path.
func linkedFiles(t testing.TB, top string, count int) {
	t.Helper()
	dir := deepest(t, top, strings.Repeat("n", 250), 400)
	defer dir.Close()
	at := int(dir.Fd())
	for i := range count {
		first := fmt.Sprint("first", i)
		check.OK(t, errors.Join(unix.Mknodat(at, first, unix.S_IFREG|0o600, 0), unix.Linkat(at, first, at, fmt.Sprint("second", i), 0)))
	}
}

func TestCopyTree_HardLinksTakeFewFilesAndLittleMemory(t *testing.T) {
	const variable = "HOLDFAST_COPY"
	if src := os.Getenv(variable); src != "" {
		confined(t, func() error { return CopyTree(t.Context(), src+"-copy", src) })
		return
	}
	count := 2000
	if hostfs.All() {
		count = 100_000
	}
	for fstype, size := range map[string]int64{"ext4": 8 * gib, "xfs": 2 * gib, "btrfs": 2 * gib} { // ext4 has one inode per 16 KiB
		t.Run(fstype, func(t *testing.T) {
			dir := newFS(t, fstype, size)
			peaks := map[string]int64{}
			for name, count := range map[string]int{"few": 10, "many": count} {
				src := filepath.Join(dir, name)
				check.OK(t, errors.Join(os.Mkdir(src, 0o755), os.Mkdir(src+"-copy", 0o755)))
				linkedFiles(t, src, count)
				peaks[name] = inChild(t, variable, src)
				check.Same(t, len(command(t, "find", src+"-copy", "-type", "f", "-links", "2", "-printf", "x")), 2*count)
				absent(t, src+"-copy.links")
			}
			t.Logf("memory: %v KiB", peaks) // depends on when garbage is collected
			if hostfs.Figures() && peaks["many"] > peaks["few"]*2 {
				t.Errorf("memory: %v KiB", peaks)
			}
		})
	}
}

func TestCopyTree_FileWithTheMaximumOfHardLinksIsCopied(t *testing.T) {
	dir := newFS(t, "ext4", 256*mib)
	src, dst := filepath.Join(dir, "src"), filepath.Join(dir, "dst")
	check.OK(t, errors.Join(os.Mkdir(src, 0o755), os.Mkdir(dst, 0o755)))
	first := write(t, filepath.Join(src, "first"), "x")
	most := uint64(1)
	for ; ; most++ {
		err := os.Link(first, filepath.Join(src, fmt.Sprint(most)))
		if errors.Is(err, unix.EMLINK) {
			break
		}
		check.OK(t, err)
	}
	check.OK(t, CopyTree(t.Context(), dst, src))
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(dst, "first"), &st); err != nil || st.Nlink != most || most < 1000 {
		t.Errorf("the copy has %d names of %d, %v", st.Nlink, most, err)
	}
}

func TestDeepTree_SettingGroupAndProjectTakesFewFiles(t *testing.T) {
	const variable = "HOLDFAST_GIVE"
	if top := os.Getenv(variable); top != "" {
		confined(t, func() error { return SetGroup(t.Context(), top, 4321) })
		return
	}
	requireRoot(t)
	top := t.TempDir()
	dir := deepest(t, top, "d", maxDepth-1)
	defer dir.Close()
	inChild(t, variable, top)
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil || st.Gid != 4321 {
		t.Errorf("the deepest directory is of group %d, %v", st.Gid, err)
	}
}

// ".." of a directory that was moved out of the tree leads elsewhere.
func TestWalk_DoesNotFollowADirectoryThatIsMovedAway(t *testing.T) {
	requireRoot(t)
	dir := t.TempDir()
	top, elsewhere := filepath.Join(dir, "top"), filepath.Join(dir, "elsewhere")
	check.OK(t, errors.Join(os.Mkdir(top, 0o755), os.Mkdir(elsewhere, 0o755)))
	precious := write(t, filepath.Join(elsewhere, "precious"), "")
	deepen(t, top, 2*openLevels)
	n := check.Got(openTop(top))(t)
	defer n.Close()
	moved := filepath.Join(top, strings.Repeat("d/", openLevels/2))
	depth := 0
	w := treeWalk{
		enter: func(*node, string) error {
			if depth++; depth == 2*openLevels {
				return os.Rename(moved, filepath.Join(elsewhere, "moved"))
			}
			return nil
		},
		leave: func(*node) error { return nil },
		leaf:  func(n *node, _ string) error { return fmt.Errorf("it met %s", n.Name()) },
	}
	if err := w.walk(t.Context(), n); !errors.Is(err, unix.EBUSY) {
		t.Errorf("got %v, want that a directory was moved; %s must not be met", err, precious)
	}
}
