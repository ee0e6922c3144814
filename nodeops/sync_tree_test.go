package nodeops

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

func ignore(int64) {}

// twoFS makes a source and a target of different file systems.
func twoFS(t testing.TB, source, target string) (src, dst string) {
	t.Helper()
	return newFS(t, source, fileSystems[source]), newFS(t, target, fileSystems[target])
}

var pairsOfFileSystems = [][2]string{{"xfs", "ext4"}, {"ext4", "btrfs"}, {"btrfs", "xfs"}}

// eachPair runs a test with a source and a target of each pair of file systems.
func eachPair(t *testing.T, test func(t *testing.T, src, dst string)) {
	requireRoot(t)
	for _, pair := range pairsOfFileSystems {
		t.Run(pair[0]+" to "+pair[1], func(t *testing.T) {
			src, dst := twoFS(t, pair[0], pair[1])
			test(t, src, dst)
		})
	}
}

// syncAndCompare expects an equal copy, and returns how many bytes were written for it.
func syncAndCompare(t testing.TB, dst, src string) (int64, Content) {
	t.Helper()
	written := check.Got(SyncTree(t.Context(), dst, src, ignore))(t)
	content := check.Got(CompareTrees(t.Context(), dst, src, false, ignore))(t)
	return written, content
}

// ofXFS matches access control lists as XFS keeps them, which it lists with all other attributes.
var ofXFS = regexp.MustCompile(` ?trusted\.SGI_ACL_[A-Z]+="(\\.|[^"\\])*"`)

// sameTrees compares by means other than those of the package.
func sameTrees(t testing.TB, dst, src string) {
	t.Helper()
	got, want := describeTree(t, dst), describeTree(t, src)
	for _, lines := range []*[]string{&got, &want} {
		*lines = slices.DeleteFunc(*lines, func(line string) bool { return len(line) > 12 && line[:12] == `"lost+found"` })
		for i, line := range *lines {
			(*lines)[i] = strings.ReplaceAll(ofXFS.ReplaceAllString(line, ""), "  ", " ")
		}
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("first difference:\ngot  %s\nwant %s", got[min(i, len(got)-1)], want[min(i, len(want)-1)])
		}
	}
	err := filepath.WalkDir(src, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		name, _ := filepath.Rel(src, path)
		one, err1 := os.OpenFile(path, os.O_RDONLY|unix.O_NOATIME, 0)
		other, err2 := os.OpenFile(filepath.Join(dst, name), os.O_RDONLY|unix.O_NOATIME, 0)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		defer one.Close()
		defer other.Close()
		sameContent(t, one, other)
		return nil
	})
	check.Report(t, err)
}

func TestSyncTree_CopyInAnotherFileSystemIsEqual(t *testing.T) {
	eachPair(t, func(t *testing.T, src, dst string) {
		plant(t, src)
		syncAndCompare(t, dst, src)
		sameTrees(t, dst, src)
		if taken := allocated(t, filepath.Join(dst, "sparse")); taken > 2*mib {
			t.Errorf("the sparse file takes %d bytes", taken)
		}
		if written, _ := syncAndCompare(t, dst, src); written != 0 {
			t.Errorf("%d bytes were written again", written)
		}
		if _, err := os.Lstat(filepath.Join(dst, ".holdfast-links")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the directory for hard links is left: %v", err)
		}
	})
}

func TestSyncTree_TargetLosesWhatItsSourceLacks(t *testing.T) {
	eachPair(t, func(t *testing.T, src, dst string) {
		plant(t, src)
		plant(t, dst)
		must := func(errs ...error) {
			t.Helper()
			check.OK(t, errors.Join(errs...))
		}
		// Names with another kind, more, fewer and wrong hard links, other content with the same time and size.
		must(os.RemoveAll(filepath.Join(dst, "dir/sub")), os.Symlink("/etc", filepath.Join(dst, "dir/sub")))
		must(os.Remove(filepath.Join(dst, "link")), os.MkdirAll(filepath.Join(dst, "link/deep/er"), 0o755))
		must(os.Remove(filepath.Join(dst, "dir/hard")), os.Link(filepath.Join(dst, "dir/many-7"), filepath.Join(dst, "dir/hard")))
		must(os.Remove(filepath.Join(dst, "null2")), os.Link(filepath.Join(dst, "dir/many-8"), filepath.Join(dst, "extra")))
		must(os.Remove(filepath.Join(dst, "dir/many-9")), os.Link(filepath.Join(dst, "dir/many-10"), filepath.Join(dst, "dir/many-9")))
		must(os.MkdirAll(filepath.Join(dst, "gone/with/all"), 0o700), os.Mkdir(filepath.Join(dst, ".holdfast-links"), 0o700))
		must(unix.Setxattr(filepath.Join(dst, "listed"), "user.old", []byte("x"), 0))
		write(t, filepath.Join(dst, ".holdfast-links/12"), "of another run")
		write(t, filepath.Join(dst, "gone/with/all/of it"), "x")
		write(t, filepath.Join(dst, "sparse2"), "x")
		syncAndCompare(t, dst, src)
		sameTrees(t, dst, src)
	})
}

func TestSyncTree_LostAndFoundOfTheTargetStays(t *testing.T) {
	src, dst := twoFS(t, "xfs", "ext4")
	found := write(t, filepath.Join(dst, lostAndFound, "#12"), "found by e2fsck")
	inner := filepath.Join(dst, "dir", lostAndFound)
	check.OK(t, errors.Join(os.Mkdir(filepath.Join(src, "dir"), 0o755), os.MkdirAll(inner, 0o755)))
	syncAndCompare(t, dst, src)
	if read(t, found) != "found by e2fsck" {
		t.Error("what e2fsck has found was removed")
	}
	if _, err := os.Lstat(inner); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory of that name elsewhere stays: %v", err)
	}
}

func TestSyncTree_FileIsCopiedAgainFromWhereItsCopyEnds(t *testing.T) {
	eachPair(t, func(t *testing.T, src, dst string) {
		large := holey(t, filepath.Join(src, "large"), 64*mib)
		check.Got(large.WriteAt(bytes.Repeat([]byte("more"), 5<<20), 8*mib))(t)
		whole, _ := syncAndCompare(t, dst, src)
		check.OK(t, large.Sync())
		// As if the second half had not been copied, and as if data were where the source has a hole.
		copied := check.Got(os.OpenFile(filepath.Join(dst, "large"), os.O_RDWR, 0))(t)
		defer copied.Close()
		check.OK(t, copied.Truncate(16*mib))
		check.Got(copied.WriteAt([]byte("x"), 4*mib))(t)
		rest, _ := syncAndCompare(t, dst, src)
		if rest == 0 || rest > whole/4*3 {
			t.Errorf("%d bytes of %d were written again", rest, whole)
		}
		sameContent(t, copied, large)
	})
}

func TestSyncTree_HardLinkIsCopiedInEachOrder(t *testing.T) {
	eachPair(t, func(t *testing.T, src, dst string) {
		names := []string{"a", "b", "c", "d"}
		for missing := range len(names) + 1 {
			for i, name := range names {
				path := filepath.Join(src, name)
				os.Remove(path)
				if i == 0 {
					write(t, path, fmt.Sprint("round ", missing))
				} else if err := os.Link(filepath.Join(src, names[0]), path); err != nil {
					t.Fatal(err)
				}
			}
			syncAndCompare(t, dst, src)
			for _, name := range names[:missing] {
				os.Remove(filepath.Join(dst, name))
				syncAndCompare(t, dst, src)
			}
			sameTrees(t, dst, src)
		}
	})
}

func TestSyncTree_DeepTreeWithOddNamesIsCopied(t *testing.T) {
	src, dst := twoFS(t, "xfs", "btrfs")
	dir := deepest(t, src, strings.Repeat("\n\xfe\x1b[2J'\"", 25), 60)
	defer dir.Close()
	for _, name := range []string{"-rf", " ", "\xff\xfe", "..\n", "$(id)", strings.Repeat("n", 255), ".holdfast-links", "lost+found"} {
		check.OK(t, errors.Join(unix.Mknodat(int(dir.Fd()), name, unix.S_IFREG|0o600, 0), os.WriteFile(filepath.Join(src, name), []byte(name), 0o600)))
	}
	check.OK(t, os.Link(filepath.Join(src, "-rf"), filepath.Join(src, "linked")))
	_, content := syncAndCompare(t, dst, src)
	if content.Files != 17 {
		t.Errorf("%d files were compared", content.Files)
	}
}

func TestSyncTree_RefusesWhatACopyWouldLack(t *testing.T) {
	src, dst := twoFS(t, "btrfs", "ext4")
	file := write(t, filepath.Join(src, "file"), "x")
	check.OK(t, unix.Setxattr(file, "user.large", bytes.Repeat([]byte("x"), 8000), 0))
	_, err := SyncTree(t.Context(), dst, src, ignore)
	if !errors.Is(err, ErrCannotKeep) || !strings.Contains(err.Error(), "user.large of "+filepath.Join(dst, "file")) {
		t.Errorf("an attribute that is too large: %v", err)
	}
	check.OK(t, os.Remove(file))
	command(t, "btrfs", "-q", "subvolume", "create", filepath.Join(src, "inner"))
	for name, err := range map[string]error{
		"sync":    func() error { _, err := SyncTree(t.Context(), dst, src, ignore); return err }(),
		"compare": func() error { _, err := CompareTrees(t.Context(), dst, src, false, ignore); return err }(),
	} {
		if !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), "inner") {
			t.Errorf("%s with a subvolume: %v", name, err)
		}
	}
}

func TestSyncTree_TimeThatTheTargetCannotKeepIsNamed(t *testing.T) {
	src := newFS(t, "btrfs", fileSystems["btrfs"])
	dst := newFS(t, "ext4", fileSystems["ext4"], "-I", "128") // it keeps whole seconds
	write(t, filepath.Join(src, "file"), "x")
	check.OK(t, unix.UtimesNano(filepath.Join(src, "file"), []unix.Timespec{{Sec: 1e9, Nsec: 5}, {Sec: 1e9, Nsec: 5}}))
	if _, err := SyncTree(t.Context(), dst, src, ignore); !errors.Is(err, ErrCannotKeep) || !strings.Contains(err.Error(), "modification time") {
		t.Errorf("got %v", err)
	}
}

func TestSyncTree_FullTargetSaysHowMuchIsMissing(t *testing.T) {
	src := newFS(t, "xfs", 640*mib)
	write(t, filepath.Join(src, "large"), strings.Repeat("x", 100<<20))
	dst := newFS(t, "ext4", 64*mib)
	_, err := SyncTree(t.Context(), dst, src, ignore)
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("got %v", err)
	}
	var missing int64
	_, after, _ := strings.Cut(err.Error(), "about ")
	if _, scan := fmt.Sscanf(after, "%d bytes are missing", &missing); scan != nil || missing < 40*mib || missing > 60*mib {
		t.Errorf("%d bytes are said to be missing: %v", missing, err)
	}
	for i := range 300 {
		write(t, filepath.Join(src, fmt.Sprint("small", i)), "")
	}
	check.OK(t, os.Remove(filepath.Join(src, "large")))
	few := newFS(t, "ext4", 64*mib, "-N", "128")
	_, err = SyncTree(t.Context(), few, src, ignore)
	if _, after, _ := strings.Cut(fmt.Sprint(err), "about "); !errors.Is(err, unix.ENOSPC) || !strings.Contains(after, " are missing") {
		t.Fatalf("got %v", err)
	} else if _, scan := fmt.Sscanf(after, "%d are missing", &missing); scan != nil || missing < 100 || missing > 250 {
		t.Errorf("%d inodes are said to be missing: %v", missing, err)
	}
}

func TestCompareTrees_EveryDifferenceIsFoundAndMended(t *testing.T) {
	src, dst := twoFS(t, "xfs", "ext4")
	plant(t, src)
	syncAndCompare(t, dst, src)
	at := func(name string) string { return filepath.Join(dst, name) }
	unchanged := func(name string, change func() error) error { // but for what change does
		var st unix.Stat_t
		if err := unix.Lstat(at(name), &st); err != nil {
			return err
		}
		err := change()
		return errors.Join(err, unix.UtimesNanoAt(unix.AT_FDCWD, at(name), []unix.Timespec{st.Atim, st.Mtim}, unix.AT_SYMLINK_NOFOLLOW))
	}
	for name, test := range map[string]struct {
		change func() error
		names  string
	}{
		"a byte": {func() error {
			return unchanged("dir/many-1", func() error { return os.WriteFile(at("dir/many-1"), []byte("2"), 0) })
		}, "many-1"},
		"a byte of several names": {func() error {
			return unchanged("file", func() error { return os.WriteFile(at("file"), []byte("CONTENT"), 0) })
		}, "content differs"},
		"a byte in a hole": {func() error {
			return unchanged("sparse", func() error { flipAt(t, at("sparse"), 10*mib); return nil })
		}, "sparse"},
		"the mode":     {func() error { return os.Chmod(at("fifo"), 0o600) }, "mode"},
		"the owner":    {func() error { return os.Lchown(at("link"), 9, 9) }, "owner"},
		"the time":     {func() error { return os.Chtimes(at("dir/many-2"), time.Now(), time.Now()) }, "modification time"},
		"an attribute": {func() error { return unix.Setxattr(at("file"), "user.name", []byte("other"), 0) }, "user.name"},
		"one too few":  {func() error { return unix.Removexattr(at("file"), "user.name") }, "user.name"},
		"one more":     {func() error { return unix.Setxattr(at("null"), "trusted.more", nil, 0) }, "trusted.more"},
		"a list":       {func() error { return unix.Removexattr(at("dir"), "system.posix_acl_default") }, "posix_acl_default"},
		"a link": {func() error {
			return errors.Join(os.Remove(at("dir/dangling")), os.Symlink("elsewhere", at("dir/dangling")))
		}, "dangling"},
		"no file":      {func() error { return os.Remove(at("dir/many-3")) }, "many-3"},
		"no directory": {func() error { return os.Remove(at("dir/sub/empty")) }, "empty"},
		"a file more":  {func() error { write(t, at("dir/sub/more"), ""); return nil }, "sub"},
		"a device": {func() error {
			return unchanged("disk", func() error {
				return errors.Join(os.Remove(at("disk")), unix.Mknod(at("disk"), unix.S_IFBLK|0o600, int(unix.Mkdev(7, 2))))
			})
		}, "device number"},
		"a name less": {func() error {
			return errors.Join(os.Remove(at("dir/hard")), exec.Command("cp", "-a", at("file"), at("dir/hard")).Run())
		}, "names"},
	} {
		t.Run(name, func(t *testing.T) {
			check.OK(t, test.change())
			for _, mend := range []bool{false, true} {
				_, err := CompareTrees(t.Context(), dst, src, mend, ignore)
				if !errors.Is(err, ErrDiffers) || !strings.Contains(err.Error(), test.names) {
					t.Errorf("mend %t: %v", mend, err)
				}
			}
			syncAndCompare(t, dst, src)
			sameTrees(t, dst, src)
		})
	}
}

func flipAt(t testing.TB, path string, at int64) {
	t.Helper()
	f := check.Got(os.OpenFile(path, os.O_RDWR, 0))(t)
	defer f.Close()
	b := make([]byte, 1)
	readAt(t, f, b, at)
	b[0] ^= 1
	check.Got(f.WriteAt(b, at))(t)
	check.OK(t, f.Sync())
}

func TestCompareTrees_DigestIsThatOfTheContentInEveryFileSystem(t *testing.T) {
	src, dst := twoFS(t, "xfs", "ext4")
	plant(t, src)
	_, first := syncAndCompare(t, dst, src)
	third := newFS(t, "btrfs", fileSystems["btrfs"])
	_, second := syncAndCompare(t, third, dst) // lost+found of ext4 is an entry more
	check.OK(t, os.Remove(filepath.Join(third, lostAndFound)))
	fourth := newFS(t, "xfs", fileSystems["xfs"])
	var st unix.Stat_t
	check.OK(t, unix.Stat(src, &st))
	check.OK(t, unix.UtimesNano(third, []unix.Timespec{st.Atim, st.Mtim}))
	_, again := syncAndCompare(t, fourth, third)
	if first != again || first.SHA256 == second.SHA256 || len(first.SHA256) != 64 {
		t.Errorf("the digests are %v, %v and %v", first, second, again)
	}
}

func TestCopyDevice_IsContinuedAndStaysThin(t *testing.T) {
	requireRoot(t)
	source, target := hostfs.Disk(t, 64*mib), hostfs.Disk(t, 65*mib)
	f, err := os.OpenFile(source, os.O_RDWR|unix.O_SYNC, 0)
	check.OK(t, err)
	defer f.Close()
	data := bytes.Repeat([]byte("holdfast"), 1<<17)
	for _, at := range []int64{0, 10*mib + 4096, 63 * mib} {
		check.Got(f.WriteAt(data, at))(t)
	}
	var done int64
	written, err := CopyDevice(t.Context(), target, source, func(n int64) { done += n })
	if err != nil || written < 3*mib || written > 4*mib || done != 64*mib {
		t.Fatalf("%d bytes were written, %d done: %v", written, done, err)
	}
	content, err := CompareDevices(t.Context(), target, source, ignore)
	if want := checksum(t, source); err != nil || content.SHA256 != want || content.Bytes != 64*mib {
		t.Errorf("%v, %v, want %s", content, err, want)
	}
	if again, err := CopyDevice(t.Context(), target, source, ignore); err != nil || again != 0 {
		t.Errorf("%d bytes were written again: %v", again, err)
	}
	hostfs.Overwrite(t, target, 20*mib, 1)
	if _, err := CompareDevices(t.Context(), target, source, ignore); !errors.Is(err, ErrDiffers) || !strings.Contains(err.Error(), fmt.Sprint(20*mib)) {
		t.Errorf("a byte differs: %v", err)
	}
	if again, err := CopyDevice(t.Context(), target, source, ignore); err != nil || again != patchBlock {
		t.Errorf("%d bytes were written for one that differs: %v", again, err)
	}
	if taken := allocated(t, hostfs.Detach(t, target)); taken > 4*mib {
		t.Errorf("the thin target takes %d bytes", taken)
	}
}

func TestCopyDevice_TooSmallIsRefused(t *testing.T) {
	requireRoot(t)
	_, err := CopyDevice(t.Context(), hostfs.Disk(t, 15*mib), hostfs.Disk(t, 16*mib), ignore)
	if !errors.Is(err, ErrTooSmall) || !strings.Contains(err.Error(), fmt.Sprint(mib, " bytes are missing")) {
		t.Errorf("got %v", err)
	}
}

func TestSyncTree_TakesFewFilesAndLittleMemory(t *testing.T) {
	const variable = "HOLDFAST_SYNC"
	if src := os.Getenv(variable); src != "" {
		confined(t, func() error {
			if _, err := SyncTree(t.Context(), src+"-copy", src, ignore); err != nil {
				return err
			}
			_, err := CompareTrees(t.Context(), src+"-copy", src, false, ignore)
			return err
		})
		return
	}
	count := 5000
	if hostfs.All() {
		count = 50_000
	}
	dir := newFS(t, "xfs", 8*gib)
	src := filepath.Join(dir, "src")
	check.OK(t, errors.Join(os.Mkdir(src, 0o755), os.Mkdir(src+"-copy", 0o755)))
	linkedFiles(t, src, count)
	// Memory depends on when garbage is collected. Half of what the pod may have is the limit.
	if peak := inChild(t, variable, src); hostfs.Figures() && peak > shadow*128<<10 {
		t.Errorf("memory: %d KiB", peak)
	} else {
		t.Logf("memory: %d KiB", peak)
	}
}

func TestCompareTrees_ReadsTheDiskAndNotThePageCache(t *testing.T) {
	src := newFS(t, "xfs", fileSystems["xfs"])
	image := newImage(t, "ext4", fileSystems["ext4"])
	dst := mountImage(t, image)
	content := strings.Repeat("a content that is nowhere else", 1<<13)
	write(t, filepath.Join(src, "file"), content)
	syncAndCompare(t, dst, src)
	if read(t, filepath.Join(dst, "file")) != content { // and so it is in the page cache
		t.Fatal("the copy has other content")
	}
	syncAt(t, dst)
	at := strings.Index(read(t, image), content[:4*kib])
	if at < 0 {
		t.Fatal("the content is not on the disk")
	}
	flipAt(t, image, int64(at)+100)
	if _, err := CompareTrees(t.Context(), dst, src, false, ignore); !errors.Is(err, ErrDiffers) {
		t.Errorf("the disk has another byte: %v", err)
	}
}
