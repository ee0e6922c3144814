package cluster_test

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
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
	inBubble(t, func(w *world) {
		w.Hosts(map[string]int64{"a": 100 * gib})
		w.Until("quiet", func() bool { return len(writes(w.API.Requests())) == 0 })
		const many = 20
		var all sync.WaitGroup
		begun := time.Now()
		for i := range many {
			all.Go(func() {
				_, err := w.Backend.Create(w.Context(), inmemory.Spec(fmt.Sprintf("v%d", i), mib))
				check.Report(w, err)
			})
		}
		all.Wait()
		made := writes(w.API.Requests())
		w.Logf("%d volumes made in %s: %v", many, time.Since(begun), made)
		for i := range many {
			all.Go(func() { check.Report(w, w.Backend.Delete(w.Context(), backend.ID(fmt.Sprintf("v%d", i)))) })
		}
		all.Wait()
		deleted := writes(w.API.Requests())
		w.Logf("and deleted: %v", deleted)
		// The node's own record is written at a rate that does not depend on the number of volumes.
		for _, counted := range []map[string]int{made, deleted} {
			delete(counted, "apply storagenodes/status")
		}
		if want := (map[string]int{"create volumes": many, "update volumes/status": many}); !maps.Equal(made, want) {
			w.Errorf("made with %v, want %v", made, want)
		}
		// The agent reads the object once more before it deletes data: its cache may show one that is gone.
		if want := (map[string]int{"get volumes": many, "patch volumes": 2 * many, "delete volumes": many}); !maps.Equal(deleted, want) {
			w.Errorf("deleted with %v, want %v", deleted, want)
		}
	})
}

func TestTraffic_SnapshotCostsTwoWritesToCreateAndThreeToDelete(t *testing.T) {
	inBubble(t, func(w *world) {
		w.Hosts(map[string]int64{"a": gib})
		check.Got(w.Backend.Create(w.Context(), inmemory.Spec("v", mib)))(w)
		w.Until("quiet", func() bool { return len(writes(w.API.Requests())) == 0 })
		check.Got(w.Backend.Snapshot(w.Context(), backend.SnapshotSpec{Name: "s", Source: "v"}))(w)
		check.OK(w, w.Backend.DeleteSnapshot(w.Context(), "s"))
		counted := writes(w.API.Requests())
		delete(counted, "apply storagenodes/status")
		want := map[string]int{"create snapshots": 1, "update snapshots/status": 1, "get snapshots": 1, "patch snapshots": 2, "delete snapshots": 1}
		if !maps.Equal(counted, want) {
			w.Errorf("asked %v, want %v", counted, want)
		}
	})
}

func TestTraffic_StorageNodeIsWrittenAtItsOwnRate(t *testing.T) {
	inBubble(t, func(w *world) {
		w.Publish = time.Hour
		w.Hosts(map[string]int64{"a": 100 * gib})
		w.Until("quiet", func() bool { return len(writes(w.API.Requests())) == 0 })
		for i := range 20 {
			check.Got(w.Backend.Create(w.Context(), inmemory.Spec(fmt.Sprintf("v%d", i), mib)))(w)
		}
		if n := w.API.Requests()["apply storagenodes/status"]; n > 0 {
			w.Errorf("it was written %d times within its hour", n)
		}
	})
}
