package local

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

func TestDirectoryOnXFS_OfADeepTreeTakesNoPoolDown(t *testing.T) {
	deepTreeTakesNoPoolDown(t, hostfs.XFSQuota)
}

func TestDirectoryOnExt4_OfADeepTreeTakesNoPoolDown(t *testing.T) {
	deepTreeTakesNoPoolDown(t, hostfs.Ext4Quota)
}

func TestDirectoryOnBtrfs_OfADeepTreeTakesNoPoolDown(t *testing.T) {
	deepTreeTakesNoPoolDown(t, hostfs.Btrfs)
}

// deepTreeTakesNoPoolDown has volumes that are deeper than the number of file descriptors: one is deleted, another was
// copied halfway by a killed process.
func deepTreeTakesNoPoolDown(t *testing.T, k hostfs.Kind) {
	const variable = "HOLDFAST_DEEP_POOL"
	if path := os.Getenv(variable); path != "" {
		serveDeepTrees(t, path)
		return
	}
	showProgress(t)
	c := PoolConfig{Name: "pool", Engine: "directory", Path: hostfs.New(t, k, 8<<30), TrashRetention: backend.NoTrash}
	b := open(t, c)
	t.Cleanup(func() { b.Close(context.Background()) })
	depth := 5000
	switch {
	case hostfs.All() && k.Name == hostfs.Btrfs.Name:
		depth = 1_000_000
	case hostfs.All():
		depth = 100_000 // the memory of the UML kernel, which has quotas, limits how deep a tree can be created
	}
	for _, name := range []string{"a", "b", "c"} {
		v := made(t, b, backend.VolumeSpec{Name: name, Size: backend.Size{Required: 1 << 30}, Inodes: inodesFor(k, 2*depth)})
		if name != "c" {
			deepen(t, v.Access.Directory, depth)
		}
	}
	check.OK(t, b.Close(context.Background()))
	check.OK(t, os.Rename(filepath.Join(c.Path, "volumes", "b"), filepath.Join(c.Path, buildingDir, "volumes.b")))
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), variable+"="+c.Path)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %.2000s", err, out)
	}
	for _, dir := range []string{string(volumes), buildingDir, trashDir} {
		entries, err := os.ReadDir(filepath.Join(c.Path, dir))
		if err != nil || len(entries) > 1 || len(entries) == 1 && entries[0].Name() != "c" {
			t.Errorf("left in %s: %v, %v", dir, entries, err)
		}
	}
}

// showProgress prints from time to time: a kernel that is silent counts as hung, and this takes it minutes.
func showProgress(t *testing.T) {
	tick, ended := time.NewTicker(30*time.Second), make(chan struct{})
	var printing sync.WaitGroup
	printing.Go(func() {
		for {
			select {
			case <-tick.C:
				t.Log("still running")
			case <-ended:
				return
			}
		}
	})
	t.Cleanup(func() {
		tick.Stop()
		close(ended)
		printing.Wait()
	})
}

func inodesFor(k hostfs.Kind, n int) uint64 {
	if k.Name == hostfs.Btrfs.Name {
		return 0
	}
	return uint64(n)
}

func serveDeepTrees(t *testing.T, path string) {
	const few = 128
	check.OK(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: few, Max: few}))
	b := served(t, PoolConfig{Name: "pool", Engine: "directory", Path: path, TrashRetention: backend.NoTrash})
	check.Got(b.Get(t.Context(), "c"))(t)
	deleted(t, b, "a")
	p := b.pools()[0]
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for { // each attempt continues the previous one; one that is running counts as a leftover too
		half := check.Got(os.ReadDir(filepath.Join(path, buildingDir)))(t)
		if p.leftoverCount() == 0 && len(half) == 0 {
			return
		}
		p.removeLeftovers(t.Context(), timeOfAll())
		<-tick.C
	}
}

// deepen makes nested directories.
func deepen(t *testing.T, top string, depth int) {
	t.Helper()
	dir := check.Got(unix.Open(top, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0))(t)
	for range depth {
		check.OK(t, unix.Mkdirat(dir, "d", 0o755))
		next := check.Got(unix.Openat(dir, "d", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0))(t)
		unix.Close(dir)
		dir = next
	}
	unix.Close(dir)
}
