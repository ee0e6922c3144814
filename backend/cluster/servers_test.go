package cluster_test

import (
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/inmemory"
)

func TestSharedVolume_IsCreatedOnTheServerWithTheMostCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		hosts := w.Servers(map[string]int64{inmemory.ServerA: 2 * gib, inmemory.ServerB: 4 * gib}, map[string]int64{"node-a": 100 * gib})
		v, err := w.Backend.Create(t.Context(), inmemory.SharedSpec("v", gib, "", "node-a"))
		if err != nil || !v.Shared || v.Server != "team/b" || !hosts[inmemory.ServerB].Has("v") || v.Access.NFS == nil || *v.Access.NFS != (backend.NFS{Server: "10.96.0.7", Path: "/v"}) {
			t.Fatalf("made %+v with %+v, %v", v, v.Access.NFS, err)
		}
		if o := w.Volume("v"); !o.Spec.Shared || o.Spec.ServerRef.String() != "" || o.Spec.Node != inmemory.ServerB || o.Status.Access.NFS == nil || *o.Status.Access.NFS != (v1beta1.VolumeNFS{Server: "10.96.0.7", Path: "/v"}) {
			t.Errorf("the object is %+v, %+v", o.Spec, o.Status.Access)
		}
		again, err := w.Backend.Create(t.Context(), inmemory.SharedSpec("v", gib, "team/b"))
		if err != nil || again.Server != "team/b" {
			t.Errorf("asked again: %+v, %v", again, err)
		}
		_, err = w.Backend.Create(t.Context(), inmemory.SharedSpec("v", gib, "shop/a"))
		inmemory.Expect(t, err, backend.ErrExists, "team/b", "shop/a")
		_, err = w.Backend.Create(t.Context(), inmemory.Spec("v", gib))
		inmemory.Expect(t, err, backend.ErrExists, "sharing")
	})
}

func TestSharedVolume_IsCreatedOnTheNamedServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		hosts := w.Servers(map[string]int64{inmemory.ServerA: 2 * gib, inmemory.ServerB: 4 * gib}, map[string]int64{"node-a": 100 * gib})
		v, err := w.Backend.Create(t.Context(), inmemory.SharedSpec("v", gib, "shop/a"))
		if err != nil || v.Server != "shop/a" || !hosts[inmemory.ServerA].Has("v") {
			t.Fatalf("made %+v, %v", v, err)
		}
		_, err = w.Backend.Create(t.Context(), inmemory.SharedSpec("w", 3*gib, "shop/a"))
		inmemory.Expect(t, err, backend.ErrExhausted, "1Gi are free")
		_, err = w.Backend.Create(t.Context(), inmemory.SharedSpec("w", gib, "shop/none"))
		inmemory.Expect(t, err, backend.ErrUnavailable, "shop/none", "shop/a, team/b")
		for _, bad := range []string{"a", "shop/a/b", "/a", "shop/", "node-a", "shop/a.b", "shop.a.nfs.holdfast.dev"} {
			_, err = w.Backend.Create(t.Context(), inmemory.SharedSpec("w", gib, bad))
			inmemory.Expect(t, err, backend.ErrInvalid, bad, "NAMESPACE/NAME")
		}
		s := inmemory.Spec("w", gib)
		s.Server = "shop/a"
		_, err = w.Backend.Create(t.Context(), s)
		inmemory.Expect(t, err, backend.ErrInvalid, "shop/a", "only a shared volume")
	})
}

func TestSharedVolume_OtherVolumesAreNeverOnAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		hosts := w.Servers(map[string]int64{inmemory.ServerA: 100 * gib}, map[string]int64{"node-a": 2 * gib})
		v, err := w.Backend.Create(t.Context(), inmemory.Spec("v", gib))
		if err != nil || v.Node != "node-a" || v.Shared || v.Server != "" {
			t.Fatalf("made %+v, %v", v, err)
		}
		_, err = w.Backend.Create(t.Context(), inmemory.Spec("w", 5*gib))
		inmemory.Expect(t, err, backend.ErrExhausted, "node-a")
		_, err = w.Backend.Create(t.Context(), inmemory.Spec("w", gib, inmemory.ServerA))
		inmemory.Expect(t, err, backend.ErrExhausted)
		if has := hosts[inmemory.ServerA].Volumes(); len(has) > 0 {
			t.Errorf("the server has %v", has)
		}
	})
}

func TestSharedVolume_ServerThatIsBeingDeletedGetsNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		hosts := w.Servers(map[string]int64{inmemory.ServerA: 4 * gib, inmemory.ServerB: 2 * gib}, nil)
		v, err := w.Backend.Create(t.Context(), inmemory.SharedSpec("v", mib, ""))
		if err != nil || v.Server != "shop/a" {
			t.Fatalf("made %+v, %v", v, err)
		}
		servers := w.Ours.HoldfastV1beta1().NFSServers("shop")
		s := &v1beta1.NFSServer{ObjectMeta: metav1.ObjectMeta{Name: "a", Finalizers: []string{"example.com/in-use"}}}
		check.Got(servers.Create(t.Context(), s, metav1.CreateOptions{}))(t)
		check.OK(t, servers.Delete(t.Context(), "a", metav1.DeleteOptions{}))
		w.Until("the deletion being known", func() bool { return w.Backend.Disallowed(inmemory.ServerA) != nil })

		_, err = w.Backend.Create(t.Context(), inmemory.SharedSpec("named", mib, "shop/a"))
		inmemory.Expect(t, err, backend.ErrUnavailable, "NFS server shop/a", "being deleted")
		_, err = w.Backend.Clone(t.Context(), "v", inmemory.SharedSpec("copy", mib, ""))
		inmemory.Expect(t, err, backend.ErrUnavailable, "NFS server shop/a", "being deleted")
		if free, err := w.Backend.Create(t.Context(), inmemory.SharedSpec("free", mib, "")); err != nil || free.Server != "team/b" {
			t.Errorf("made %+v, %v", free, err)
		}
		if v, err := w.Backend.Expand(t.Context(), "v", backend.Size{Required: 2 * mib}); err != nil || v.Size != 2*mib {
			t.Errorf("one that it has does not grow: %+v, %v", v, err)
		}
		if has := hosts[inmemory.ServerA].Volumes(); len(has) != 1 {
			t.Errorf("it has %v", has)
		}
	})
}

func TestSharedVolume_WaitsForAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Hosts(map[string]int64{"node-a": 2 * gib})
		_, err := w.Backend.Create(t.Context(), inmemory.SharedSpec("v", gib, ""))
		inmemory.Expect(t, err, backend.ErrUnavailable, "NFSServer")
		if _, err := w.Backend.SharedCapacity(t.Context(), "", ""); err == nil {
			t.Error("there is capacity without a server")
		}
	})
}

func TestCapacity_IsOfNodesOrOfServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Servers(map[string]int64{inmemory.ServerA: 2 * gib, inmemory.ServerB: 4 * gib}, map[string]int64{"node-a": 10 * gib, "node-b": 20 * gib})
		if c, err := w.Backend.Capacity(t.Context(), ""); err != nil || c.Available != 30*gib || c.Largest != 20*gib {
			t.Errorf("of nodes: %+v, %v", c, err)
		}
		if c, err := w.Backend.SharedCapacity(t.Context(), "", ""); err != nil || c.Available != 6*gib || c.Largest != 4*gib {
			t.Errorf("of servers: %+v, %v", c, err)
		}
		if c, err := w.Backend.SharedCapacity(t.Context(), "shop/a", "memory"); err != nil || c.Available != 2*gib {
			t.Errorf("of one: %+v, %v", c, err)
		}
		_, err := w.Backend.SharedCapacity(t.Context(), "shop/b", "")
		inmemory.Expect(t, err, backend.ErrNotFound, "NFS server shop/b")
		_, err = w.Backend.SharedCapacity(t.Context(), "", "fast")
		inmemory.Expect(t, err, backend.ErrNotFound, "fast")
	})
}

func TestSharedVolume_GrowsAndIsCopiedOnItsServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Servers(map[string]int64{inmemory.ServerA: 4 * gib, inmemory.ServerB: 40 * gib}, map[string]int64{"node-a": 100 * gib})
		check.Got(w.Backend.Create(t.Context(), inmemory.SharedSpec("v", mib, "shop/a")))(t)
		if v, err := w.Backend.Expand(t.Context(), "v", backend.Size{Required: 2 * mib}); err != nil || v.Size != 2*mib || !v.Shared {
			t.Fatalf("grown to %+v, %v", v, err)
		}
		s, err := w.Backend.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: "v"})
		if err != nil || !s.Shared || s.Node != inmemory.ServerA {
			t.Fatalf("the snapshot is %+v, %v", s, err)
		}
		for name, server := range map[string]string{"free": "", "named": "shop/a"} {
			v, err := w.Backend.Restore(t.Context(), "s", inmemory.SharedSpec(name, 2*mib, server, "node-a"))
			if err != nil || v.Server != "shop/a" || v.Access.NFS == nil {
				t.Errorf("restored %+v, %v", v, err)
			}
		}
		_, err = w.Backend.Clone(t.Context(), "v", inmemory.SharedSpec("other", 2*mib, "team/b"))
		inmemory.Expect(t, err, backend.ErrInvalid, "shop/a", "team/b")
		_, err = w.Backend.Clone(t.Context(), "v", inmemory.Spec("unshared", 2*mib))
		inmemory.Expect(t, err, backend.ErrInvalid, "shop/a", "shared")
		check.Got(w.Backend.Create(t.Context(), inmemory.Spec("local", mib)))(t)
		_, err = w.Backend.Clone(t.Context(), "local", inmemory.SharedSpec("shared", mib, ""))
		inmemory.Expect(t, err, backend.ErrInvalid, "node-a", "without shared")
	})
}

func TestSharedVolume_DataOnTheDiskOfAServerIsFoundAsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		disk := inmemory.NewHost(gib)
		check.Got(disk.Create(t.Context(), inmemory.Spec("found", mib)))(t)
		w.Address = "10.96.0.7"
		w.Agent(inmemory.ServerA, inmemory.Exporter{Host: disk})
		w.Start()
		w.Until("the volume", func() bool {
			v, err := w.Backend.Get(t.Context(), "found")
			return err == nil && v.Shared && v.Server == "shop/a" && v.Access.NFS != nil
		})
	})
}
