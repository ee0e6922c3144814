package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/holdfast-storage/holdfast/agent"
	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/backendtest"
	"github.com/holdfast-storage/holdfast/backend/local"
	"github.com/holdfast-storage/holdfast/test/hostfs"
	"github.com/holdfast-storage/holdfast/test/realapi"
)

func TestMain(m *testing.M) { os.Exit(realapi.Main(m)) }

// realWorld is a world over a real API server. What it makes is removed in the end, whatever became of its agents.
func realWorld(t *testing.T) *world {
	t.Helper()
	w := worldOf(t, realapi.Config(t))
	w.until("the kinds being served", func() bool {
		_, err := w.volumes().List(t.Context(), metav1.ListOptions{})
		_, errSnapshots := w.snapshots().List(t.Context(), metav1.ListOptions{})
		_, errNodes := w.nodes().List(t.Context(), metav1.ListOptions{})
		return errors.Join(err, errSnapshots, errNodes) == nil
	})
	t.Cleanup(w.sweep)
	return w
}

func (w *world) sweep() {
	ctx := context.Background()
	free := []byte(`{"metadata":{"finalizers":null}}`)
	volumes, _ := w.volumes().List(ctx, metav1.ListOptions{})
	for _, v := range volumes.Items {
		_ = w.volumes().Delete(ctx, v.Name, metav1.DeleteOptions{})
		_, _ = w.volumes().Patch(ctx, v.Name, types.MergePatchType, free, metav1.PatchOptions{})
	}
	snapshots, _ := w.snapshots().List(ctx, metav1.ListOptions{})
	for _, s := range snapshots.Items {
		_ = w.snapshots().Delete(ctx, s.Name, metav1.DeleteOptions{})
		_, _ = w.snapshots().Patch(ctx, s.Name, types.MergePatchType, free, metav1.PatchOptions{})
	}
	for name := range w.agents {
		_ = w.nodes().Delete(ctx, name, metav1.DeleteOptions{})
		_ = w.theirs.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
		_ = w.theirs.CoordinationV1().Leases(v1.DefaultNamespace).Delete(ctx, v1.LeasePrefix+name, metav1.DeleteOptions{})
	}
}

func TestAClusterOfOneHostInMemoryConformsOnARealServer(t *testing.T) {
	backendtest.Suite{Open: func(t *testing.T, size int64) *backendtest.Fixture {
		w := realWorld(t)
		memory := backendtest.NewMemorySized(size)
		return w.fixture(memory, func() backend.Backend { return memory }, &backendtest.Fixture{
			Write:    func(_ *testing.T, v *backend.Volume, content []byte) { memory.Write(v.ID, content) },
			Read:     func(_ *testing.T, v *backend.Volume, length int) []byte { return memory.Read(v.ID, length) },
			Mode:     backend.Filesystem,
			Smallest: 16 * mib,
		})
	}}.Run(t)
}

func TestAClusterOfOneRealHostConformsOnARealServer(t *testing.T) {
	backendtest.Suite{Open: func(t *testing.T, size int64) *backendtest.Fixture { return onDisk(t, realWorld(t), size) }}.Run(t)
}

func TestAClusterOfOneRealHostConforms(t *testing.T) {
	hostfs.Long(t)
	backendtest.Suite{Open: func(t *testing.T, size int64) *backendtest.Fixture { return onDisk(t, newWorld(t), size) }}.Run(t)
}

func TestAClusterOfOneHostWithDirectoriesConforms(t *testing.T) {
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
	w.pools = []agent.Pool{{Name: config.Name, Path: config.Path, Engine: config.Engine}}
	var open *local.Backend
	reopen := func() backend.Backend {
		var err error
		if open != nil {
			if err := open.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		if open, err = local.Open(context.Background(), []local.PoolConfig{config}, w.log); err != nil {
			t.Fatal(err)
		}
		return open
	}
	t.Cleanup(func() { open.Close(context.Background()) })
	return w.fixture(reopen(), reopen, &backendtest.Fixture{
		Write: func(t *testing.T, v *backend.Volume, written []byte) {
			f, err := os.OpenFile(content(v), os.O_WRONLY|os.O_CREATE, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.Write(written)
			if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
				t.Fatal(err)
			}
		},
		Read: func(t *testing.T, v *backend.Volume, length int) []byte {
			read, err := os.ReadFile(content(v))
			if err != nil {
				t.Fatal(err)
			}
			return read[:min(length, len(read))]
		},
	})
}

// TestANodeIsLostAndComesBackOnARealServer goes through what depends on the server: two writers of one node's
// conditions, deletion held by a finalizer, preconditions.
func TestANodeIsLostAndComesBackOnARealServer(t *testing.T) {
	w := realWorld(t)
	w.lease = shortLease
	name := "lost-" + rand.String(5)
	w.kubernetesNode(name)
	hosts := w.hosts(map[string]int64{name: gib})
	w.leads()
	w.made("kept", name, "")
	w.made("given-up", name, backend.DeleteOnNodeLoss)
	w.down(name)
	w.reason("kept", v1.ReasonNodeDown)
	w.deleteNode(name)
	w.gone("given-up")
	w.until("the phase", func() bool { return w.volume("kept").Status.Phase == v1.PhaseUnreachable })
	w.agent(name, hosts[name])
	w.reason("kept", v1.ReasonReady)
	w.ready(name)
	w.until("the disk without what was given up", func() bool { return !hosts[name].has("given-up") })
	w.until("the one condition Ready of the node", func() bool {
		n, err := w.nodes().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false
		}
		status, reason := w.readiness(n.Status.Conditions)
		ready := 0
		for _, c := range n.Status.Conditions {
			if c.Type == v1.ReadyCondition {
				ready++
			}
		}
		return ready == 1 && status == metav1.ConditionTrue && reason == v1.ReasonReady
	})
}

func TestAGrowthThatFailsIsTakenBackOnARealServer(t *testing.T) {
	w := realWorld(t)
	w.hosts(map[string]int64{"grown-" + rand.String(5): gib})
	if _, err := w.backend.Create(t.Context(), spec("v", 16*mib)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err := w.backend.Expand(t.Context(), "v", backend.Size{Required: 2 * gib, Limit: 3 * gib})
		expect(t, err, backend.ErrExhausted)
	}
	if v, err := w.backend.Expand(t.Context(), "v", backend.Size{Required: 32 * mib}); err != nil || v.Size != 32*mib {
		t.Fatalf("a smaller wish: %+v, %v", v, err)
	}
	if o := w.volume("v"); o.Spec.Size.Required.Value() != 32*mib {
		t.Errorf("the object asks for %s", o.Spec.Size.Required)
	}
}

// TestManyAtOnceOnARealServer makes, copies and deletes many volumes on several nodes.
func TestManyAtOnceOnARealServer(t *testing.T) {
	w := realWorld(t)
	hosts := w.hosts(map[string]int64{"many-a-" + rand.String(5): 100 * gib, "many-b-" + rand.String(5): 100 * gib})
	const many = 50
	var mu sync.Mutex
	var took []time.Duration
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			begun := time.Now()
			if _, err := w.backend.Create(t.Context(), spec(fmt.Sprintf("v%d", i), gib)); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, time.Since(begun))
		})
	}
	all.Wait()
	slices.Sort(took)
	t.Logf("%d at once: half within %s, all within %s", many, took[many/2], took[many-1])
	begun := time.Now()
	if _, err := w.backend.Create(t.Context(), spec("one", gib)); err != nil {
		t.Fatal(err)
	}
	t.Logf("one alone: %s", time.Since(begun))
	for name, h := range hosts {
		if n := len(h.volumes()); n < many/3 {
			t.Errorf("node %s has %d volumes of %d", name, n, many)
		}
	}
	for i := range many {
		all.Go(func() {
			if err := w.backend.Delete(t.Context(), backend.ID(fmt.Sprintf("v%d", i))); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if left, err := w.backend.List(t.Context()); err != nil || len(left) != 1 {
		t.Errorf("left are %d, %v", len(left), err)
	}
}

// poolFor leaves about size bytes to promise of the file system the test runs on.
func poolFor(t *testing.T, size int64) local.PoolConfig {
	path := filepath.Join(t.TempDir(), "pool")
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	probe, err := local.Open(context.Background(), []local.PoolConfig{{Name: "pool", Path: path, Reserved: "0"}}, newWorldLog(t))
	if err != nil {
		t.Fatal(err)
	}
	room, err := probe.Capacity(context.Background(), "")
	if err := errors.Join(err, probe.Close(context.Background())); err != nil {
		t.Fatal(err)
	}
	return local.PoolConfig{Name: "pool", Path: path, Reserved: fmt.Sprint(max(0, room.Available-size))}
}
