package cluster_test

import (
	"testing"
	"testing/synctest"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/inmemory"
)

func TestServer_ThatIsNotAllowedGetsNoVolumesOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		hosts := w.Servers(map[string]int64{inmemory.ServerA: 2 * gib, inmemory.ServerB: 400 * gib}, map[string]int64{"node-a": gib})
		if _, err := w.Backend.Create(t.Context(), inmemory.SharedSpec("before", mib, "team/b")); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Backend.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: "before"}); err != nil {
			t.Fatal(err)
		}
		w.Allow("shop", "other")
		w.Until("the list", func() bool { _, err := w.Backend.SharedCapacity(t.Context(), "team/b", ""); return err != nil })
		const command = `kubectl patch storagecluster holdfast --type=merge --patch='{"spec":{"nfs":{"namespaces":["shop","other","team"]}}}'`
		v, err := w.Backend.Create(t.Context(), inmemory.SharedSpec("v", mib, ""))
		if err != nil || v.Server != "shop/a" {
			t.Fatalf("made %+v, %v", v, err)
		}
		if c, err := w.Backend.SharedCapacity(t.Context(), "", ""); err != nil || c.Total != 2*gib {
			t.Errorf("the capacity is %+v, %v", c, err)
		}
		_, err = w.Backend.Create(t.Context(), inmemory.SharedSpec("w", mib, "team/b"))
		inmemory.Expect(t, err, backend.ErrUnavailable, "team/b", command)
		_, err = w.Backend.Restore(t.Context(), "s", inmemory.SharedSpec("restored", mib, ""))
		inmemory.Expect(t, err, backend.ErrUnavailable, "team/b", command)
		_, err = w.Backend.Clone(t.Context(), "before", inmemory.SharedSpec("cloned", mib, ""))
		inmemory.Expect(t, err, backend.ErrUnavailable, "team/b", command)
		if has := hosts[inmemory.ServerB].Volumes(); len(has) != 1 {
			t.Errorf("the server has %v", has)
		}
		// What it has is served on: it grows, is copied, and goes.
		if v, err := w.Backend.Expand(t.Context(), "before", backend.Size{Required: 2 * mib}); err != nil || v.Size != 2*mib {
			t.Errorf("it grew to %+v, %v", v, err)
		}
		if _, err := w.Backend.Snapshot(t.Context(), backend.SnapshotSpec{Name: "another", Source: "before"}); err != nil {
			t.Error(err)
		}
		if err := w.Backend.Delete(t.Context(), "before"); err != nil {
			t.Error(err)
		}
		w.Allow("shop", "team")
		w.Until("a volume of the server that is allowed again", func() bool {
			v, err := w.Backend.Create(t.Context(), inmemory.SharedSpec("w", mib, "team/b"))
			return err == nil && v.Server == "team/b"
		})
	})
}
