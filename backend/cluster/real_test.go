package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/holdfast-storage/holdfast/agent"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/backendtest"
	"github.com/holdfast-storage/holdfast/backend/local"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/inmemory"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
)

func TestMain(m *testing.M) { os.Exit(realapi.Main(m)) }

func TestMemory_ClusterOfOneHostConformsOnARealAPIServer(t *testing.T) {
	backendtest.Suite{Open: func(t *testing.T, size int64) *backendtest.Fixture {
		w := realWorld(t)
		memory := backendtest.NewMemorySized(size)
		return w.fixture(memory, func() agent.Storage { return memory }, &backendtest.Fixture{
			Write:    func(_ *testing.T, v *backend.Volume, content []byte) { memory.Write(v.ID, content) },
			Read:     func(_ *testing.T, v *backend.Volume, length int) []byte { return memory.Read(v.ID, length) },
			Mode:     backend.Filesystem,
			Smallest: 16 * mib,
		})
	}}.Run(t)
}

func TestReal_ClusterOfOneHostConformsOnARealAPIServer(t *testing.T) {
	backendtest.Suite{Open: func(t *testing.T, size int64) *backendtest.Fixture { return onDisk(t, realWorld(t), size) }}.Run(t)
}

func TestReal_ClusterOfOneHostConforms(t *testing.T) {
	hostfs.Long(t)
	backendtest.Suite{Open: func(t *testing.T, size int64) *backendtest.Fixture { return onDisk(t, newWorld(t), size) }}.Run(t)
}

func TestReal_ClusterOfOneHostWithDirectoriesConforms(t *testing.T) {
	hostfs.Long(t)
	hostfs.RequireRoot(t)
	backendtest.Suite{Open: func(t *testing.T, size int64) *backendtest.Fixture {
		config := local.PoolConfig{Name: "pool", Engine: "directory", Path: hostfs.New(t, hostfs.Btrfs, size)}
		file := func(v *backend.Volume) string { return filepath.Join(v.Access.Directory, "file") }
		f := overPool(t, newWorld(t), config, file)
		f.Mode, f.Smallest = backend.Filesystem, 64*mib
		return f
	}}.Run(t)
}

// onDisk has a pool of images of block volumes on whatever file system the test runs on.
func onDisk(t *testing.T, w *world, size int64) *backendtest.Fixture {
	f := overPool(t, w, poolFor(t, size), func(v *backend.Volume) string { return v.Access.Image })
	f.Mode, f.Smallest = backend.Block, 16*mib
	return f
}

// overPool puts a cluster in front of a pool; content says which file has what a volume's user writes.
func overPool(t *testing.T, w *world, config local.PoolConfig, content func(*backend.Volume) string) *backendtest.Fixture {
	w.Pools = []agent.Pool{{Name: config.Name, Path: config.Path, Engine: config.Engine}}
	var open *local.Backend
	reopen := func() agent.Storage {
		var err error
		if open != nil {
			check.OK(t, open.Close(context.Background()))
		}
		if open, err = local.Open(context.Background(), []local.PoolConfig{config}, w.Logger); err != nil {
			t.Fatal(err)
		}
		return open
	}
	t.Cleanup(func() { open.Close(context.Background()) })
	return w.fixture(reopen(), reopen, &backendtest.Fixture{
		Write: func(t *testing.T, v *backend.Volume, written []byte) {
			f, err := os.OpenFile(content(v), os.O_WRONLY|os.O_CREATE, 0o600)
			check.OK(t, err)
			_, err = f.Write(written)
			check.OK(t, errors.Join(err, f.Sync(), f.Close()))
		},
		Read: func(t *testing.T, v *backend.Volume, length int) []byte {
			read := check.Got(os.ReadFile(content(v)))(t)
			return read[:min(length, len(read))]
		},
	})
}

func TestExpand_FailureIsRevertedOnARealAPIServer(t *testing.T) { revertsGrowth(realWorld(t)) }

// TestCreate_ManyAtOnceOnARealAPIServer makes, copies and deletes many volumes on several nodes.
func TestCreate_ManyAtOnceOnARealAPIServer(t *testing.T) {
	w := realWorld(t)
	hosts := w.Hosts(map[string]int64{"many-a-" + rand.String(5): 100 * gib, "many-b-" + rand.String(5): 100 * gib})
	const many = 50
	var mu sync.Mutex
	var took []time.Duration
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			begun := time.Now()
			_, err := w.Backend.Create(t.Context(), inmemory.Spec(fmt.Sprintf("v%d", i), gib))
			check.Report(t, err)
			mu.Lock()
			defer mu.Unlock()
			took = append(took, time.Since(begun))
		})
	}
	all.Wait()
	slices.Sort(took)
	t.Logf("%d at once: half within %s, all within %s", many, took[many/2], took[many-1])
	begun := time.Now()
	check.Got(w.Backend.Create(t.Context(), inmemory.Spec("one", gib)))(t)
	t.Logf("one alone: %s", time.Since(begun))
	for name, h := range hosts {
		if n := len(h.Volumes()); n < many/3 {
			t.Errorf("node %s has %d volumes of %d", name, n, many)
		}
	}
	for i := range many {
		all.Go(func() { check.Report(t, w.Backend.Delete(t.Context(), backend.ID(fmt.Sprintf("v%d", i)))) })
	}
	all.Wait()
	if left, err := w.Backend.List(t.Context()); err != nil || len(left) != 1 {
		t.Errorf("left are %d, %v", len(left), err)
	}
}

// poolFor leaves about size bytes to promise of the file system the test runs on.
func poolFor(t *testing.T, size int64) local.PoolConfig {
	path := filepath.Join(t.TempDir(), "pool")
	check.OK(t, os.Mkdir(path, 0o755))
	probe, err := local.Open(context.Background(), []local.PoolConfig{{Name: "pool", Path: path, Reserved: "0"}}, slog.New(slog.NewTextHandler(t.Output(), nil)))
	check.OK(t, err)
	room, err := probe.Capacity(context.Background(), "")
	check.OK(t, errors.Join(err, probe.Close(context.Background())))
	return local.PoolConfig{Name: "pool", Path: path, Reserved: fmt.Sprint(max(0, room.Available-size))}
}
