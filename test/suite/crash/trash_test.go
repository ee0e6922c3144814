package crash

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-storage/holdfast/crashpoint"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

// What the pools of these tests lie on, and what leaves room for three volumes of it.
const (
	poolSize = 8 << 30
	roomFor3 = "reserved=6800Mi"
	roomy    = "reserved=5%"
)

// volumes runs holdfast volumes on the pool, beside the process.
func (w *world) volumes(env []string, args ...string) (string, error) {
	w.Helper()
	cmd := exec.CommandContext(w.ctx(), w.options.Binary, append([]string{"volumes", "--pool", w.options.Pools[0]}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// trashed are the entries of the trash.
func (w *world) trashed() (names []string) {
	w.Helper()
	entries, err := os.ReadDir(filepath.Join(w.pool, ".trash"))
	w.must(err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestTrash_VolumeInItSurvivesAKill uses a pool as it is by default.
func TestTrash_VolumeInItSurvivesAKill(t *testing.T) {
	pool, binary := hostfs.New(t, hostfs.XFS, poolSize), crashing(t)
	for _, restoring := range []bool{false, true} {
		t.Run(fmt.Sprintf("when it is restored: %t", restoring), func(t *testing.T) {
			w := newWorld(t, binary, pool, kind{engine: "image", fsType: "xfs", more: roomy})
			stored(w)
			w.must(w.Stop())
			w.start("HOLDFAST_CRASH_AT=" + string(crashpoint.DeleteTrashed))
			if err := w.delete("a"); err == nil || !w.Killed() {
				t.Fatalf("the process was not killed: %v", err)
			}
			w.disconnectAndStart()
			w.must(w.delete("a"), w.delete("a"))
			if names := w.trashed(); len(names) != 1 || !strings.HasPrefix(names[0], "volumes.a.") {
				t.Fatalf("the trash holds %v", names)
			}
			if restoring {
				if out, err := w.volumes([]string{"HOLDFAST_CRASH_AT=" + string(crashpoint.UndeleteRenamed)}, "restore", "a"); err == nil {
					t.Fatalf("the command was not killed: %s", out)
				}
			} else if out, err := w.volumes(nil, "restore", "a"); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			w.use("a", func() { w.holds("a", "one") })
			if names := w.trashed(); len(names) > 0 {
				t.Errorf("the trash holds %v", names)
			}
			w.must(w.delete("a"))
			cleared(w)
		})
	}
}

// cleared ends a case: what it has left in the trash goes, and then nothing is left.
func cleared(w *world) {
	w.Helper()
	w.must(w.Stop())
	w.options.Pools = []string{strings.NewReplacer(","+roomy, ",trashRetention=0s", ","+roomFor3, ",trashRetention=0s").Replace(w.options.Pools[0])}
	w.start()
	w.empty()
}

// takes waits until about so much is available less than before: xfs frees what was deleted in the background.
func (w *world) takes(before, want int64) {
	w.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	over := time.After(time.Minute)
	for {
		now, err := w.GetCapacity(context.WithoutCancel(w.ctx()), &csi.GetCapacityRequest{})
		w.must(err)
		taken := before - now.AvailableCapacity
		if taken >= want-8<<20 && taken <= want+8<<20 {
			return
		}
		select {
		case <-tick.C:
		case <-over:
			w.Fatalf("a volume of %d bytes took %d of what was available", want, taken)
		}
	}
}

func TestTrash_CreateThatDisplacesItSurvivesAKill(t *testing.T) {
	pool, binary := hostfs.New(t, hostfs.XFS, poolSize), crashing(t)
	for _, step := range []crashpoint.Step{crashpoint.TrashTaken, crashpoint.DeletePartly, crashpoint.BuildBegun, crashpoint.BuildCommitted} {
		t.Run(string(step), func(t *testing.T) {
			w := newWorld(t, binary, pool, kind{engine: "image", fsType: "xfs", more: roomFor3})
			stored(w)
			for _, name := range []string{"b", "c"} {
				w.must(w.create(name), w.delete(name))
			}
			before, err := w.GetCapacity(w.ctx(), &csi.GetCapacityRequest{})
			w.must(err)
			w.must(w.Stop())
			w.start("HOLDFAST_CRASH_AT=" + string(step))
			if err := w.create("d"); err == nil || !w.Killed() {
				t.Fatalf("the process was not killed: %v", err)
			}
			w.disconnectAndStart()
			w.must(w.create("d"), w.create("d"))
			if names := w.trashed(); len(names) != 1 || !strings.HasPrefix(names[0], "volumes.c.") {
				t.Errorf("the trash holds %v, of which b was to go", names)
			}
			w.takes(before.AvailableCapacity, size)
			w.use("a", func() { w.holds("a", "one") })
			w.must(w.delete("a"), w.delete("d"))
			cleared(w)
		})
	}
}
