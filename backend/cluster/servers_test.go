package cluster_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/inmemory"
)

func TestSharedVolume_IsCreatedOnTheNamedServerOrThatWithTheMostCapacity(t *testing.T) {
	inBubble(t, func(w *world) {
		hosts := w.Servers(map[string]int64{inmemory.ServerA: 2 * gib, inmemory.ServerB: 4 * gib}, map[string]int64{"node-a": 100 * gib})
		v, err := w.Backend.Create(w.Context(), inmemory.SharedSpec("v", gib, "", "node-a"))
		if err != nil || !v.Shared || v.Server != "team/b" || !hosts[inmemory.ServerB].Has("v") || v.Access.NFS == nil || *v.Access.NFS != (backend.NFS{Server: "10.96.0.7", Path: "/v"}) {
			w.Fatalf("made %+v with %+v, %v", v, v.Access.NFS, err)
		}
		if o := w.Volume("v"); !o.Spec.Shared || o.Spec.ServerRef.String() != "" || o.Spec.Node != inmemory.ServerB || o.Status.Access.NFS == nil || *o.Status.Access.NFS != (v1beta1.VolumeNFS{Server: "10.96.0.7", Path: "/v"}) {
			w.Errorf("the object is %+v, %+v", o.Spec, o.Status.Access)
		}
		again, err := w.Backend.Create(w.Context(), inmemory.SharedSpec("v", gib, "team/b"))
		if err != nil || again.Server != "team/b" {
			w.Errorf("asked again: %+v, %v", again, err)
		}
		inmemory.Refused(w.Backend.Create(w.Context(), inmemory.SharedSpec("v", gib, "shop/a")))(w, backend.ErrExists, "team/b", "shop/a")
		inmemory.Refused(w.Backend.Create(w.Context(), inmemory.Spec("v", gib)))(w, backend.ErrExists, "sharing")
		v, err = w.Backend.Create(w.Context(), inmemory.SharedSpec("named", gib, "shop/a"))
		if err != nil || v.Server != "shop/a" || !hosts[inmemory.ServerA].Has("named") {
			w.Fatalf("made %+v, %v", v, err)
		}
		inmemory.Refused(w.Backend.Create(w.Context(), inmemory.SharedSpec("w", 3*gib, "shop/a")))(w, backend.ErrExhausted, "1Gi are free")
		_, err = w.Backend.Create(w.Context(), inmemory.SharedSpec("w", gib, "shop/none"))
		inmemory.Expect(w, err, backend.ErrUnavailable, "shop/none", "shop/a, team/b")
		for _, bad := range []string{"a", "shop/a/b", "/a", "shop/", "node-a", "shop/a.b", "shop.a.nfs.holdfast.dev"} {
			inmemory.Refused(w.Backend.Create(w.Context(), inmemory.SharedSpec("w", gib, bad)))(w, backend.ErrInvalid, bad, "NAMESPACE/NAME")
		}
		s := inmemory.Spec("w", gib)
		s.Server = "shop/a"
		inmemory.Refused(w.Backend.Create(w.Context(), s))(w, backend.ErrInvalid, "shop/a", "only a shared volume")
	})
}

func TestSharedVolume_OtherVolumesAreNeverOnAServer(t *testing.T) {
	inBubble(t, func(w *world) {
		hosts := w.Servers(map[string]int64{inmemory.ServerA: 100 * gib}, map[string]int64{"node-a": 2 * gib})
		v, err := w.Backend.Create(w.Context(), inmemory.Spec("v", gib))
		if err != nil || v.Node != "node-a" || v.Shared || v.Server != "" {
			w.Fatalf("made %+v, %v", v, err)
		}
		inmemory.Refused(w.Backend.Create(w.Context(), inmemory.Spec("w", 5*gib)))(w, backend.ErrExhausted, "node-a")
		inmemory.Refused(w.Backend.Create(w.Context(), inmemory.Spec("w", gib, inmemory.ServerA)))(w, backend.ErrExhausted)
		if has := hosts[inmemory.ServerA].Volumes(); len(has) > 0 {
			w.Errorf("the server has %v", has)
		}
	})
}

func TestSharedVolume_ServerThatIsBeingDeletedGetsNoMore(t *testing.T) {
	inBubble(t, func(w *world) {
		hosts := w.Servers(map[string]int64{inmemory.ServerA: 4 * gib, inmemory.ServerB: 2 * gib}, nil)
		v, err := w.Backend.Create(w.Context(), inmemory.SharedSpec("v", mib, ""))
		if err != nil || v.Server != "shop/a" {
			w.Fatalf("made %+v, %v", v, err)
		}
		servers := w.Ours.HoldfastV1beta1().NFSServers("shop")
		s := &v1beta1.NFSServer{ObjectMeta: metav1.ObjectMeta{Name: "a", Finalizers: []string{"example.com/in-use"}}}
		check.Got(servers.Create(w.Context(), s, metav1.CreateOptions{}))(w)
		check.OK(w, servers.Delete(w.Context(), "a", metav1.DeleteOptions{}))
		w.Until("the deletion being known", func() bool { return w.Backend.Disallowed(inmemory.ServerA) != nil })

		_, err = w.Backend.Create(w.Context(), inmemory.SharedSpec("named", mib, "shop/a"))
		inmemory.Expect(w, err, backend.ErrUnavailable, "NFS server shop/a", "being deleted")
		_, err = w.Backend.Clone(w.Context(), "v", inmemory.SharedSpec("copy", mib, ""))
		inmemory.Expect(w, err, backend.ErrUnavailable, "NFS server shop/a", "being deleted")
		if free, err := w.Backend.Create(w.Context(), inmemory.SharedSpec("free", mib, "")); err != nil || free.Server != "team/b" {
			w.Errorf("made %+v, %v", free, err)
		}
		if v, err := w.Backend.Expand(w.Context(), "v", backend.Size{Required: 2 * mib}); err != nil || v.Size != 2*mib {
			w.Errorf("one that it has does not grow: %+v, %v", v, err)
		}
		if has := hosts[inmemory.ServerA].Volumes(); len(has) != 1 {
			w.Errorf("it has %v", has)
		}
	})
}

func TestSharedVolume_WaitsForAServer(t *testing.T) {
	inBubble(t, func(w *world) {
		w.Hosts(map[string]int64{"node-a": 2 * gib})
		inmemory.Refused(w.Backend.Create(w.Context(), inmemory.SharedSpec("v", gib, "")))(w, backend.ErrUnavailable, "NFSServer")
		if _, err := w.Backend.SharedCapacity(w.Context(), "", ""); err == nil {
			w.Error("there is capacity without a server")
		}
	})
}

func TestCapacity_IsOfNodesOrOfServers(t *testing.T) {
	inBubble(t, func(w *world) {
		w.Servers(map[string]int64{inmemory.ServerA: 2 * gib, inmemory.ServerB: 4 * gib}, map[string]int64{"node-a": 10 * gib, "node-b": 20 * gib})
		if c, err := w.Backend.Capacity(w.Context(), ""); err != nil || c.Available != 30*gib || c.Largest != 20*gib {
			w.Errorf("of nodes: %+v, %v", c, err)
		}
		if c, err := w.Backend.SharedCapacity(w.Context(), "", ""); err != nil || c.Available != 6*gib || c.Largest != 4*gib {
			w.Errorf("of servers: %+v, %v", c, err)
		}
		if c, err := w.Backend.SharedCapacity(w.Context(), "shop/a", "memory"); err != nil || c.Available != 2*gib {
			w.Errorf("of one: %+v, %v", c, err)
		}
		inmemory.Refused(w.Backend.SharedCapacity(w.Context(), "shop/b", ""))(w, backend.ErrNotFound, "NFS server shop/b")
		inmemory.Refused(w.Backend.SharedCapacity(w.Context(), "", "fast"))(w, backend.ErrNotFound, "fast")
	})
}

func TestSharedVolume_GrowsAndIsCopiedOnItsServer(t *testing.T) {
	inBubble(t, func(w *world) {
		w.Servers(map[string]int64{inmemory.ServerA: 4 * gib, inmemory.ServerB: 40 * gib}, map[string]int64{"node-a": 100 * gib})
		check.Got(w.Backend.Create(w.Context(), inmemory.SharedSpec("v", mib, "shop/a")))(w)
		if v, err := w.Backend.Expand(w.Context(), "v", backend.Size{Required: 2 * mib}); err != nil || v.Size != 2*mib || !v.Shared {
			w.Fatalf("grown to %+v, %v", v, err)
		}
		s, err := w.Backend.Snapshot(w.Context(), backend.SnapshotSpec{Name: "s", Source: "v"})
		if err != nil || !s.Shared || s.Node != inmemory.ServerA {
			w.Fatalf("the snapshot is %+v, %v", s, err)
		}
		for name, server := range map[string]string{"free": "", "named": "shop/a"} {
			v, err := w.Backend.Restore(w.Context(), "s", inmemory.SharedSpec(name, 2*mib, server, "node-a"))
			if err != nil || v.Server != "shop/a" || v.Access.NFS == nil {
				w.Errorf("restored %+v, %v", v, err)
			}
		}
		_, err = w.Backend.Clone(w.Context(), "v", inmemory.SharedSpec("other", 2*mib, "team/b"))
		inmemory.Expect(w, err, backend.ErrInvalid, "shop/a", "team/b")
		inmemory.Refused(w.Backend.Clone(w.Context(), "v", inmemory.Spec("unshared", 2*mib)))(w, backend.ErrInvalid, "shop/a", "shared")
		check.Got(w.Backend.Create(w.Context(), inmemory.Spec("local", mib)))(w)
		_, err = w.Backend.Clone(w.Context(), "local", inmemory.SharedSpec("shared", mib, ""))
		inmemory.Expect(w, err, backend.ErrInvalid, "node-a", "without shared")
	})
}

func TestSharedVolume_DataOnTheDiskOfAServerIsFoundAsShared(t *testing.T) {
	inBubble(t, func(w *world) {
		disk := inmemory.NewHost(gib)
		check.Got(disk.Create(w.Context(), inmemory.Spec("found", mib)))(w)
		w.Address = "10.96.0.7"
		w.Agent(inmemory.ServerA, inmemory.Exporter{Host: disk})
		w.Start()
		w.Until("the volume", func() bool {
			v, err := w.Backend.Get(w.Context(), "found")
			return err == nil && v.Shared && v.Server == "shop/a" && v.Access.NFS != nil
		})
	})
}
