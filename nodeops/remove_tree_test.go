package nodeops

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

// inChild runs a test in a child process with few file descriptors, and returns the child's peak memory. The variable
// says what the child does.
func inChild(t *testing.T, variable, value string) (peak int64) {
	t.Helper()
	name, _, _ := strings.Cut(t.Name(), "/")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+name+"$")
	cmd.Env = append(os.Environ(), variable+"="+value)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	_, after, _ := strings.Cut(string(out), "peak ")
	peak, err = strconv.ParseInt(strings.Fields(after + " -")[0], 10, 64)
	if err != nil {
		t.Fatalf("the process says %s", out)
	}
	return peak
}

// fewFiles is the limit of open files: fewer than a walk would need with one per level.
const fewFiles = 128

// confined runs do with few file descriptors, and prints its peak memory.
func confined(t *testing.T, do func() error) {
	t.Helper()
	check.OK(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: fewFiles, Max: fewFiles}))
	if err := do(); err != nil {
		t.Fatalf("%.2000v", err)
	}
	_, after, _ := strings.Cut(read(t, "/proc/self/status"), "VmHWM:")
	fmt.Println("peak", strings.Fields(after)[0])
}

func removeAt(ctx context.Context, path string) error {
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer root.Close()
	return RemoveTree(ctx, root, filepath.Base(path))
}

// depthOfTrees is far more than the number of file descriptors.
func depthOfTrees() int {
	if hostfs.All() {
		return 200_000
	}
	return 20_000
}

func TestRemoveTree_AnyDepthIsRemoved(t *testing.T) {
	const variable = "HOLDFAST_REMOVE"
	if path := os.Getenv(variable); path != "" {
		confined(t, func() error { return removeAt(t.Context(), path) })
		return
	}
	for fstype, size := range map[string]int64{"ext4": 24 << 30, "xfs": 8 << 30, "btrfs": 8 << 30} { // ext4 has one inode per 16 KiB
		t.Run(fstype, func(t *testing.T) {
			dir := newFS(t, fstype, size)
			peaks := map[string]int64{}
			for name, depth := range map[string]int{"shallow": depthOfTrees() / 10, "deep": depthOfTrees()} {
				tree := filepath.Join(dir, name)
				check.OK(t, os.Mkdir(tree, 0o755))
				deepen(t, tree, depth)
				peaks[name] = inChild(t, variable, tree)
			}
			if got := names(t, dir); len(got) > 1 || len(got) == 1 && got[0] != "lost+found" {
				t.Errorf("%v is left", got)
			}
			t.Logf("memory: %v KiB", peaks) // depends on when garbage is collected
			if hostfs.Figures() && peaks["deep"] > peaks["shallow"]*3/2 {
				t.Errorf("memory: %v KiB", peaks)
			}
		})
	}
}

func TestRemoveTree_LeavesTheTargetsOfLinksAndMounts(t *testing.T) {
	requireRoot(t)
	dir, elsewhere := t.TempDir(), t.TempDir()
	tree := filepath.Join(dir, "tree")
	inner := filepath.Join(tree, "a", "mounted")
	check.OK(t, os.MkdirAll(inner, 0o755))
	write(t, filepath.Join(elsewhere, "precious"), "x")
	write(t, filepath.Join(tree, "a", "file"), "x")
	check.OK(t, errors.Join(os.Symlink(elsewhere, filepath.Join(tree, "link")), unix.Mkfifo(filepath.Join(tree, "pipe"), 0o600)))
	t.Cleanup(func() { unmountAll(t, inner) })
	// It is on the same file system, so its st_dev is the same.
	check.OK(t, unix.Mount(elsewhere, inner, "", unix.MS_BIND, ""))
	check.Fails(t, removeAt(t.Context(), tree), unix.EBUSY)
	holds(t, filepath.Join(elsewhere, "precious"), "x")
	check.Same(t, fmt.Sprint(names(t, tree), names(t, filepath.Join(tree, "a"))), "[a] [mounted]")
	unmountAll(t, inner)
	check.OK(t, os.Symlink(elsewhere, filepath.Join(dir, "top")))
	for _, name := range []string{"tree", "top", "missing"} {
		check.Report(t, removeAt(t.Context(), filepath.Join(dir, name)))
	}
	check.Same(t, names(t, dir), nil)
	holds(t, filepath.Join(elsewhere, "precious"), "x")
}

func TestRemoveTree_FileThatCannotBeRemovedBlocksNothingElse(t *testing.T) {
	dir := newFS(t, "ext4", 256*mib)
	tree := filepath.Join(dir, "tree")
	deep := filepath.Join(tree, strings.Repeat("d/", 3*removeDepth))
	for _, d := range []string{deep, filepath.Join(tree, "other", "empty")} {
		check.OK(t, os.MkdirAll(d, 0o755))
	}
	kept := write(t, filepath.Join(deep, "kept"), "x")
	for i := range 1000 {
		write(t, filepath.Join(deep, fmt.Sprint(i)), "")
	}
	command(t, "chattr", "+i", kept)
	for range 2 {
		check.Fails(t, removeAt(t.Context(), tree), unix.EPERM, "kept")
	}
	left := strings.Fields(command(t, "find", tree, "!", "-type", "d"))
	if len(left) != 1 || filepath.Base(left[0]) != "kept" {
		t.Fatalf("left are %d files: %.500v", len(left), left)
	}
	command(t, "chattr", "-i", left[0])
	check.Report(t, removeAt(t.Context(), tree))
}

func TestRemoveTree_DeepTreeIsRemovedFromAFullFileSystem(t *testing.T) {
	for _, fstype := range []string{"ext4", "xfs"} {
		t.Run(fstype, func(t *testing.T) {
			args := map[string][]string{"ext4": {"-m", "0", "-N", "4096"}}[fstype]
			dir := newFS(t, fstype, 320*mib, args...)
			tree := filepath.Join(dir, "tree")
			check.OK(t, os.Mkdir(tree, 0o755))
			deepen(t, tree, 10*removeDepth)
			fill(t, filepath.Join(dir, "full"))
			for i := 0; ; i++ {
				if err := os.Mkdir(filepath.Join(dir, fmt.Sprint("d", i)), 0o755); errors.Is(err, unix.ENOSPC) {
					break
				} else if err != nil {
					t.Fatal(err)
				}
			}
			check.Report(t, removeAt(t.Context(), tree))
		})
	}
}

func TestRemoveTree_DirectoryOfAnotherProjectIsRemovedToo(t *testing.T) {
	onProjects(t, func(t *testing.T, dir string, q *ProjectQuota) {
		tree := filepath.Join(dir, "tree")
		limited(t, q, tree, Limits{Bytes: 64 * mib})
		deep := filepath.Join(tree, strings.Repeat("d/", removeDepth+3))
		check.OK(t, os.MkdirAll(deep, 0o755))
		check.OK(t, SetProject(filepath.Join(tree, "d"), 4711))
		check.Report(t, removeAt(t.Context(), tree))
	})
}

func TestRemoveTree_IsCancelledAndContinued(t *testing.T) {
	requireRoot(t)
	dir := t.TempDir()
	tree := filepath.Join(dir, "tree")
	check.OK(t, os.MkdirAll(filepath.Join(tree, strings.Repeat("d/", 3*removeDepth)), 0o755))
	for i := range 20 {
		write(t, filepath.Join(tree, fmt.Sprint(i)), "")
	}
	check.Fails(t, removeAt(&endsAfter{t.Context(), 2*removeDepth + 10}, tree), context.Canceled)
	if len(names(t, tree)) == 0 {
		t.Error("nothing is left")
	}
	check.OK(t, removeAt(t.Context(), tree))
	check.Same(t, names(t, dir), nil)
}
