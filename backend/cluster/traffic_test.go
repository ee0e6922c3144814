package cluster_test

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/inmemory"
)

// writes leaves of the requests those for volumes, snapshots and the node.
func writes(all map[string]int) map[string]int {
	rest := maps.Clone(all)
	maps.DeleteFunc(rest, func(what string, _ int) bool {
		return slices.Contains([]string{"update leases", "get leases", "create leases"}, what)
	})
	return rest
}

// TestTraffic_VolumeCostsTwoWritesToCreateAndThreeToDelete is the price of a claim at the API server, beside what the sidecars ask.
func TestTraffic_VolumeCostsTwoWritesToCreateAndThreeToDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Hosts(map[string]int64{"a": 100 * gib})
		w.Until("quiet", func() bool { return len(writes(w.API.Requests())) == 0 })
		const many = 20
		var all sync.WaitGroup
		begun := time.Now()
		for i := range many {
			all.Go(func() {
				if _, err := w.Backend.Create(t.Context(), inmemory.Spec(fmt.Sprintf("v%d", i), mib)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		made := writes(w.API.Requests())
		t.Logf("%d volumes made in %s: %v", many, time.Since(begun), made)
		for i := range many {
			all.Go(func() {
				check.Report(t, w.Backend.Delete(t.Context(), backend.ID(fmt.Sprintf("v%d", i))))
			})
		}
		all.Wait()
		deleted := writes(w.API.Requests())
		t.Logf("and deleted: %v", deleted)
		// The node's own record is written at a rate that does not depend on the number of volumes.
		for _, counted := range []map[string]int{made, deleted} {
			delete(counted, "apply storagenodes/status")
		}
		if want := (map[string]int{"create volumes": many, "update volumes/status": many}); !maps.Equal(made, want) {
			t.Errorf("made with %v, want %v", made, want)
		}
		// The agent reads the object once more before it deletes data: its cache may show one that is gone.
		if want := (map[string]int{"get volumes": many, "patch volumes": 2 * many, "delete volumes": many}); !maps.Equal(deleted, want) {
			t.Errorf("deleted with %v, want %v", deleted, want)
		}
	})
}

func TestTraffic_SnapshotCostsTwoWritesToCreateAndThreeToDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Hosts(map[string]int64{"a": gib})
		check.Got(w.Backend.Create(t.Context(), inmemory.Spec("v", mib)))(t)
		w.Until("quiet", func() bool { return len(writes(w.API.Requests())) == 0 })
		check.Got(w.Backend.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: "v"}))(t)
		check.OK(t, w.Backend.DeleteSnapshot(t.Context(), "s"))
		counted := writes(w.API.Requests())
		delete(counted, "apply storagenodes/status")
		want := map[string]int{"create snapshots": 1, "update snapshots/status": 1, "get snapshots": 1, "patch snapshots": 2, "delete snapshots": 1}
		if !maps.Equal(counted, want) {
			t.Errorf("asked %v, want %v", counted, want)
		}
	})
}

func TestTraffic_StorageNodeIsWrittenAtItsOwnRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Publish = time.Hour
		w.Hosts(map[string]int64{"a": 100 * gib})
		w.Until("quiet", func() bool { return len(writes(w.API.Requests())) == 0 })
		for i := range 20 {
			check.Got(w.Backend.Create(t.Context(), inmemory.Spec(fmt.Sprintf("v%d", i), mib)))(t)
		}
		if n := w.API.Requests()["apply storagenodes/status"]; n > 0 {
			t.Errorf("it was written %d times within its hour", n)
		}
	})
}
