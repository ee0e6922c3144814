package nodeops

import (
	"bytes"
	"errors"
	"fmt"
	"math"
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
	sameLines(t, got, want)
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
		before := changesOf(t, dst)
		written, _ := syncAndCompare(t, dst, src)
		check.Same(t, written, 0)
		check.Same(t, changesOf(t, dst), before)
		absent(t, filepath.Join(dst, ".holdfast-links"))
	})
}

// changesOf returns the ctime of every directory.
func changesOf(t testing.TB, top string) string {
	t.Helper()
	return command(t, "find", top, "-type", "d", "-printf", `%P %C@\n`)
}

func TestSyncTree_TargetLosesWhatItsSourceLacks(t *testing.T) {
	eachPair(t, func(t *testing.T, src, dst string) {
		plant(t, src)
		plant(t, dst)
		must := func(errs ...error) { check.OK(t, errors.Join(errs...)) }
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
	holds(t, found, "found by e2fsck")
	absent(t, inner)
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
	check.Same(t, content.Files, 17)
}

func TestSyncTree_RefusesWhatACopyWouldLack(t *testing.T) {
	src, dst := twoFS(t, "btrfs", "ext4")
	file := write(t, filepath.Join(src, "file"), "x")
	check.OK(t, unix.Setxattr(file, "user.large", bytes.Repeat([]byte("x"), 8000), 0))
	check.Fails(t, check.ErrorOf(SyncTree(t.Context(), dst, src, ignore)), ErrCannotKeep, "user.large of "+filepath.Join(dst, "file"))
	check.OK(t, os.Remove(file))
	command(t, "btrfs", "-q", "subvolume", "create", filepath.Join(src, "inner"))
	check.Fails(t, check.ErrorOf(SyncTree(t.Context(), dst, src, ignore)), ErrForeign, "inner")
	check.Fails(t, check.ErrorOf(CompareTrees(t.Context(), dst, src, false, ignore)), ErrForeign, "inner")
}

func TestSyncTree_TimeThatTheTargetCannotKeepIsNamed(t *testing.T) {
	src := newFS(t, "btrfs", fileSystems["btrfs"])
	dst := newFS(t, "ext4", fileSystems["ext4"], "-I", "128") // it keeps whole seconds
	write(t, filepath.Join(src, "file"), "x")
	check.OK(t, unix.UtimesNano(filepath.Join(src, "file"), []unix.Timespec{{Sec: 1e9, Nsec: 5}, {Sec: 1e9, Nsec: 5}}))
	check.Fails(t, check.ErrorOf(SyncTree(t.Context(), dst, src, ignore)), ErrCannotKeep, "modification time")
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
	if _, scan := fmt.Sscanf(after, "%dMi are missing", &missing); scan != nil || missing < 40 || missing > 60 {
		t.Errorf("%d MiB are said to be missing: %v", missing, err)
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
	check.Got(f.ReadAt(b, at))(t)
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
	source, target := hostfs.Disk(t, 64*mib), hostfs.Disk(t, 65*mib)
	f := check.Got(os.OpenFile(source, os.O_RDWR|unix.O_SYNC, 0))(t)
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
	check.Same(t, check.Got(CopyDevice(t.Context(), target, source, ignore))(t), 0)
	hostfs.Overwrite(t, target, 20*mib, 1)
	check.Fails(t, check.ErrorOf(CompareDevices(t.Context(), target, source, ignore)), ErrDiffers, fmt.Sprint(20*mib)) // a byte differs
	check.Same(t, check.Got(CopyDevice(t.Context(), target, source, ignore))(t), patchBlock)
	if taken := allocated(t, hostfs.Detach(t, target)); taken > 4*mib {
		t.Errorf("the thin target takes %d bytes", taken)
	}
}

func TestCopyDevice_TooSmallIsRefused(t *testing.T) {
	small, large := hostfs.Disk(t, 15*mib), hostfs.Disk(t, 16*mib)
	check.Fails(t, check.ErrorOf(CopyDevice(t.Context(), small, large, ignore)), ErrTooSmall, fmt.Sprint(mib, " bytes are missing"))
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
	holds(t, filepath.Join(dst, "file"), content) // and so it is in the page cache
	syncAt(t, dst)
	at := strings.Index(read(t, image), content[:4*kib])
	if at < 0 {
		t.Fatal("the content is not on the disk")
	}
	flipAt(t, image, int64(at)+100)
	check.Fails(t, check.ErrorOf(CompareTrees(t.Context(), dst, src, false, ignore)), ErrDiffers) // the disk has another byte
}

// shareZeros makes a file that shares the same blocks of zeros, and returns its size.
func shareZeros(t testing.TB, path string, times int64) int64 {
	t.Helper()
	const length int64 = 16 * mib
	f := check.Got(os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600))(t)
	defer f.Close()
	check.Got(f.WriteAt(make([]byte, length), 0))(t)
	for i := int64(1); i < times; i++ {
		if err := unix.IoctlFileCloneRange(int(f.Fd()), &unix.FileCloneRange{Src_fd: int64(f.Fd()), Src_length: uint64(length), Dest_offset: uint64(i * length)}); err != nil { //nolint:gosec // small
			t.Fatal(err)
		}
	}
	return times * length
}

func TestSyncTree_ZerosInSharedBlocksAreNotReadForever(t *testing.T) {
	src := newFS(t, "btrfs", 128*mib)
	path := filepath.Join(src, "zeros")
	large := newFS(t, "ext4", 512*mib)
	shareZeros(t, path, 2)
	syncAndCompare(t, large, src)

	size := shareZeros(t, path, 16*128/16+1)
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, ErrTooMuch) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), fmt.Sprint(16*128*mib)) || !strings.Contains(err.Error(), "--dig-holes") {
			t.Errorf("%s: %v", what, err)
		}
	}
	small := newFS(t, "ext4", 16*mib)
	_, err := SyncTree(t.Context(), small, src, ignore)
	refused("the copy", err)
	syncAndCompare(t, large, src) // into which it would fit

	check.OK(t, errors.Join(os.RemoveAll(filepath.Join(small, "zeros")), os.Truncate(write(t, filepath.Join(small, "zeros"), ""), size)))
	for _, dir := range []string{src, small} {
		check.OK(t, errors.Join(os.Chmod(filepath.Join(dir, "zeros"), 0o600), os.Chtimes(filepath.Join(dir, "zeros"), time.Unix(1, 0), time.Unix(1, 0))))
	}
	check.OK(t, check.ErrorOf(SyncTree(t.Context(), small, src, ignore))) // what is copied already counts
	_, err = CompareTrees(t.Context(), small, src, true, ignore)
	refused("the comparison", err)
}

func TestReadLimit_OfSizesThatAreHugeOrNotKnown(t *testing.T) {
	for _, l := range []*readLimit{nil, {}, {source: math.MaxInt64}, {source: 1, target: math.MaxInt64 / 2}} {
		check.Report(t, l.add(os.Stdin, math.MaxInt64/2))
	}
}

func TestDigestContent_RangeEndsWithItsBlockInFilesOfAnySize(t *testing.T) {
	const block, most = digestBlock, int64(math.MaxInt64)
	for _, test := range []struct{ to, size, want int64 }{
		{1, 10, 10},
		{10, 10, 10},
		{1, block, block},
		{block, 3 * block, block},
		{block + 1, 3 * block, 2 * block},
		{2*block + 1, 2*block + 7, 2*block + 7},
		{most - 4095, most, most},
		{most, most, most},
		{most - block - 5, most, most - block + 1},
	} {
		if got := blockEnd(test.to, test.size); got != test.want {
			t.Errorf("a range to %d of %d bytes ends with %d, want %d", test.to, test.size, got, test.want)
		}
	}
}
