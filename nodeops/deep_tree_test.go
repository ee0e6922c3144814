package nodeops

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

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
				if linked := linkedNames(t, src+"-copy"); linked != 2*count {
					t.Errorf("of %d names of files with two, %d are in the copy", 2*count, linked)
				}
				if _, err := os.Lstat(src + "-copy.links"); !os.IsNotExist(err) {
					t.Errorf("the copy left %s.links: %v", name, err)
				}
			}
			t.Logf("memory: %v KiB", peaks) // depends on when garbage is collected
			if hostfs.Figures() && peaks["many"] > peaks["few"]*2 {
				t.Errorf("memory: %v KiB", peaks)
			}
		})
	}
}

// linkedNames counts the names in a tree of files that have exactly two names.
func linkedNames(t testing.TB, top string) (count int) {
	t.Helper()
	n := check.Got(openTop(top))(t)
	defer n.Close()
	nothing := func(*node) error { return nil }
	w := treeWalk{
		enter: func(*node, string) error { return nil }, leave: nothing,
		leaf: func(n *node, _ string) error {
			if n.Nlink == 2 {
				count++
			}
			return nil
		},
	}
	check.OK(t, w.walk(t.Context(), n))
	return count
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
