package cluster_test

import (
	"context"
	"maps"
	"slices"
	"testing"

	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/cluster"
)

// exporter is a host whose volumes clients mount.
type exporter struct{ *host }

func exported(v *backend.Volume, err error) (*backend.Volume, error) {
	if v != nil {
		v.Access = backend.Access{NFS: &backend.NFS{Path: "/" + string(v.ID)}}
	}
	return v, err
}

func (e exporter) Create(ctx context.Context, spec backend.VolumeSpec) (*backend.Volume, error) {
	return exported(e.host.Create(ctx, spec))
}

func (e exporter) Get(ctx context.Context, id backend.ID) (*backend.Volume, error) {
	return exported(e.host.Get(ctx, id))
}

func (e exporter) Restore(ctx context.Context, snapshot backend.ID, spec backend.VolumeSpec) (*backend.Volume, error) {
	return exported(e.host.Restore(ctx, snapshot, spec))
}

func (e exporter) Clone(ctx context.Context, source backend.ID, spec backend.VolumeSpec) (*backend.Volume, error) {
	return exported(e.host.Clone(ctx, source, spec))
}

func (e exporter) Expand(ctx context.Context, id backend.ID, size backend.Size) (*backend.Volume, error) {
	return exported(e.host.Expand(ctx, id, size))
}

// servers starts agents of NFS servers beside those of nodes, under a controller that knows all.
func (w *world) servers(sizes map[string]int64, nodes map[string]int64) map[string]*host {
	w.Helper()
	all := map[string]*host{}
	w.allow("shop", "team")
	w.address = "10.96.0.7"
	for name, size := range sizes {
		all[name] = newHost(size)
		w.agent(name, exporter{all[name]})
	}
	w.address = ""
	maps.Copy(all, w.hosts(nodes))
	for name := range sizes {
		w.ready(name)
	}
	return all
}

// allow has the StorageCluster allow servers in namespaces, and makes it if there is none.
func (w *world) allow(namespaces ...string) {
	w.Helper()
	clusters := w.ours.HoldfastV1().StorageClusters()
	c, err := clusters.Get(w.Context(), "holdfast", metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		c = &v1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: "holdfast"}, Spec: v1.StorageClusterSpec{NFS: v1.NFSSpec{Namespaces: namespaces}}}
		_, err = clusters.Create(w.Context(), c, metav1.CreateOptions{})
	case err == nil:
		c.Spec.NFS.Namespaces = namespaces
		_, err = clusters.Update(w.Context(), c, metav1.UpdateOptions{})
	}
	if err != nil {
		w.Fatal(err)
	}
}

func sharedSpec(name string, size int64, server string, nodes ...string) backend.VolumeSpec {
	s := spec(name, size, nodes...)
	s.Shared, s.Server = true, server
	return s
}

const (
	serverA = "shop.a.nfs.holdfast.dev"
	serverB = "team.b.nfs.holdfast.dev"
)

func TestASharedVolumeIsMadeOnTheServerWithTheMostRoom(t *testing.T) {
	w := newWorld(t)
	hosts := w.servers(map[string]int64{serverA: 2 * gib, serverB: 4 * gib}, map[string]int64{"node-a": 100 * gib})
	v, err := w.backend.Create(t.Context(), sharedSpec("v", gib, "", "node-a"))
	if err != nil || !v.Shared || v.Server != "team/b" || !hosts[serverB].has("v") || v.Access.NFS == nil || *v.Access.NFS != (backend.NFS{Server: "10.96.0.7", Path: "/v"}) {
		t.Fatalf("made %+v with %+v, %v", v, v.Access.NFS, err)
	}
	if o := w.volume("v"); !o.Spec.Shared || o.Spec.Server != "" || o.Spec.Node != serverB || o.Status.Access.NFS == nil || *o.Status.Access.NFS != (v1.VolumeNFS{Server: "10.96.0.7", Path: "/v"}) {
		t.Errorf("the object is %+v, %+v", o.Spec, o.Status.Access)
	}
	again, err := w.backend.Create(t.Context(), sharedSpec("v", gib, "team/b"))
	if err != nil || again.Server != "team/b" {
		t.Errorf("asked again: %+v, %v", again, err)
	}
	_, err = w.backend.Create(t.Context(), sharedSpec("v", gib, "shop/a"))
	expect(t, err, backend.ErrExists, "team/b", "shop/a")
	_, err = w.backend.Create(t.Context(), spec("v", gib))
	expect(t, err, backend.ErrExists, "sharing")
}

func TestASharedVolumeIsMadeOnTheServerThatIsNamed(t *testing.T) {
	w := newWorld(t)
	hosts := w.servers(map[string]int64{serverA: 2 * gib, serverB: 4 * gib}, map[string]int64{"node-a": 100 * gib})
	v, err := w.backend.Create(t.Context(), sharedSpec("v", gib, "shop/a"))
	if err != nil || v.Server != "shop/a" || !hosts[serverA].has("v") {
		t.Fatalf("made %+v, %v", v, err)
	}
	_, err = w.backend.Create(t.Context(), sharedSpec("w", 3*gib, "shop/a"))
	expect(t, err, backend.ErrExhausted, "1073741824 bytes are available")
	_, err = w.backend.Create(t.Context(), sharedSpec("w", gib, "shop/none"))
	expect(t, err, backend.ErrUnavailable, "shop/none", "shop/a, team/b")
	for _, bad := range []string{"a", "shop/a/b", "/a", "shop/", "node-a", "shop/a.b", "shop.a.nfs.holdfast.dev"} {
		_, err = w.backend.Create(t.Context(), sharedSpec("w", gib, bad))
		expect(t, err, backend.ErrInvalid, bad, "NAMESPACE/NAME")
	}
	s := spec("w", gib)
	s.Server = "shop/a"
	_, err = w.backend.Create(t.Context(), s)
	expect(t, err, backend.ErrInvalid, "shop/a", "only a shared volume")
}

func TestOtherVolumesAreNeverOnAServer(t *testing.T) {
	w := newWorld(t)
	hosts := w.servers(map[string]int64{serverA: 100 * gib}, map[string]int64{"node-a": 2 * gib})
	v, err := w.backend.Create(t.Context(), spec("v", gib))
	if err != nil || v.Node != "node-a" || v.Shared || v.Server != "" {
		t.Fatalf("made %+v, %v", v, err)
	}
	_, err = w.backend.Create(t.Context(), spec("w", 5*gib))
	expect(t, err, backend.ErrExhausted, "node-a")
	_, err = w.backend.Create(t.Context(), spec("w", gib, serverA))
	expect(t, err, backend.ErrExhausted)
	if has := hosts[serverA].volumes(); len(has) > 0 {
		t.Errorf("the server has %v", has)
	}
}

func TestWithoutAServerASharedVolumeWaitsForOne(t *testing.T) {
	w := newWorld(t)
	w.hosts(map[string]int64{"node-a": 2 * gib})
	_, err := w.backend.Create(t.Context(), sharedSpec("v", gib, ""))
	expect(t, err, backend.ErrUnavailable, "NFSServer")
	if _, err := w.backend.SharedCapacity(t.Context(), "", ""); err == nil {
		t.Error("there is capacity without a server")
	}
}

func TestCapacityIsOfNodesOrOfServers(t *testing.T) {
	w := newWorld(t)
	w.servers(map[string]int64{serverA: 2 * gib, serverB: 4 * gib}, map[string]int64{"node-a": 10 * gib, "node-b": 20 * gib})
	if c, err := w.backend.Capacity(t.Context(), ""); err != nil || c.Available != 30*gib || c.Largest != 20*gib {
		t.Errorf("of nodes: %+v, %v", c, err)
	}
	if c, err := w.backend.SharedCapacity(t.Context(), "", ""); err != nil || c.Available != 6*gib || c.Largest != 4*gib {
		t.Errorf("of servers: %+v, %v", c, err)
	}
	if c, err := w.backend.SharedCapacity(t.Context(), "shop/a", "memory"); err != nil || c.Available != 2*gib {
		t.Errorf("of one: %+v, %v", c, err)
	}
	_, err := w.backend.SharedCapacity(t.Context(), "shop/b", "")
	expect(t, err, backend.ErrNotFound, "NFS server shop/b")
	_, err = w.backend.SharedCapacity(t.Context(), "", "fast")
	expect(t, err, backend.ErrNotFound, "fast")
}

func TestASharedVolumeGrowsAndIsCopiedOnItsServer(t *testing.T) {
	w := newWorld(t)
	w.servers(map[string]int64{serverA: 4 * gib, serverB: 40 * gib}, map[string]int64{"node-a": 100 * gib})
	if _, err := w.backend.Create(t.Context(), sharedSpec("v", mib, "shop/a")); err != nil {
		t.Fatal(err)
	}
	if v, err := w.backend.Expand(t.Context(), "v", backend.Size{Required: 2 * mib}); err != nil || v.Size != 2*mib || !v.Shared {
		t.Fatalf("grown to %+v, %v", v, err)
	}
	s, err := w.backend.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: "v"})
	if err != nil || !s.Shared || s.Node != serverA {
		t.Fatalf("the snapshot is %+v, %v", s, err)
	}
	for name, server := range map[string]string{"free": "", "named": "shop/a"} {
		v, err := w.backend.Restore(t.Context(), "s", sharedSpec(name, 2*mib, server, "node-a"))
		if err != nil || v.Server != "shop/a" || v.Access.NFS == nil {
			t.Errorf("restored %+v, %v", v, err)
		}
	}
	_, err = w.backend.Clone(t.Context(), "v", sharedSpec("other", 2*mib, "team/b"))
	expect(t, err, backend.ErrInvalid, "shop/a", "team/b")
	_, err = w.backend.Clone(t.Context(), "v", spec("unshared", 2*mib))
	expect(t, err, backend.ErrInvalid, "shop/a", "shared")
	if _, err := w.backend.Create(t.Context(), spec("local", mib)); err != nil {
		t.Fatal(err)
	}
	_, err = w.backend.Clone(t.Context(), "local", sharedSpec("shared", mib, ""))
	expect(t, err, backend.ErrInvalid, "node-a", "without shared")
}

func TestAServerThatIsSilentIsDownAndNeverGone(t *testing.T) {
	w := newWorld(t)
	w.lease = shortLease
	w.kubernetesNode("node-a")
	hosts := w.servers(map[string]int64{serverA: 4 * gib}, map[string]int64{"node-a": gib})
	w.leads()
	for _, name := range []string{"v", "leaving"} {
		if _, err := w.backend.Create(t.Context(), sharedSpec(name, mib, "")); err != nil {
			t.Fatal(err)
		}
	}
	w.down(serverA)
	w.reason("v", v1.ReasonNodeDown)
	v, err := w.backend.Get(t.Context(), "v")
	if err != nil || !v.Condition.Abnormal || v.Access.NFS == nil { // what it exports may go on without its agent
		t.Errorf("the volume is %+v, %v", v, err)
	}
	err = w.backend.Delete(t.Context(), "leaving")
	expect(t, err, backend.ErrUnavailable, "NFS server shop/a", "when the server is back")
	// A Node object of that name would be a coincidence; its end says nothing of the server.
	w.kubernetesNode(serverA)
	w.deleteNode(serverA)
	w.kubernetesNode("node-b")
	w.deleteNode("node-b") // seen to after it
	w.down("node-a")
	if o := w.volume("v"); o == nil || o.Status.Phase != v1.PhaseReady {
		t.Errorf("the volume is %+v", o)
	}
	if o := w.volume("leaving"); o == nil {
		t.Error("a volume was given up that the server still has")
	}
	if _, err := w.nodes().Get(t.Context(), serverA, metav1.GetOptions{}); err != nil {
		t.Errorf("the server's record: %v", err)
	}
	w.agent(serverA, exporter{hosts[serverA]})
	w.gone("leaving")
	w.reason("v", v1.ReasonReady)
}

func TestAVolumeIsMadeElsewhereWhileAServerIsDown(t *testing.T) {
	w := newWorld(t)
	w.lease = shortLease
	w.servers(map[string]int64{serverA: 4 * gib, serverB: 2 * gib}, map[string]int64{"node-a": gib})
	w.leads()
	w.down(serverA)
	v, err := w.backend.Create(t.Context(), sharedSpec("v", mib, ""))
	if err != nil || v.Server != "team/b" {
		t.Errorf("made %+v, %v", v, err)
	}
	_, err = w.backend.Create(t.Context(), sharedSpec("w", mib, "shop/a"))
	expect(t, err, backend.ErrUnavailable, "shop/a", "down")
}

func TestWhatAServerHasOnDiskIsFoundAsShared(t *testing.T) {
	w := newWorld(t)
	disk := newHost(gib)
	if _, err := disk.Create(t.Context(), spec("found", mib)); err != nil {
		t.Fatal(err)
	}
	w.address = "10.96.0.7"
	w.agent(serverA, exporter{disk})
	w.controller()
	w.until("the volume", func() bool {
		v, err := w.backend.Get(t.Context(), "found")
		return err == nil && v.Shared && v.Server == "shop/a" && v.Access.NFS != nil
	})
}

func TestAClaimForASharedVolumeIsToldWhatTheServersHave(t *testing.T) {
	both := map[string]int64{serverA: 2 * gib, serverB: 4 * gib}
	for name, c := range map[string]struct {
		servers    map[string]int64
		parameters map[string]string
		want       string
	}{
		"too small":   {both, nil, "no NFS server has that much free: shop/a 2Gi, team/b 4Gi. Ask for less, or grow its storage."},
		"another one": {both, map[string]string{"nfsServer": "shop/b"}, "the class wants the NFS server shop/b, which is not there. Create it, or use another class."},
		"a pool":      {both, map[string]string{"pool": "fast"}, `no NFS server has pool "fast". Use a class without the parameter pool.`},
		"none":        {nil, nil, "there is no NFS server. Create an NFSServer."},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.change = func(c *cluster.Config) { c.Driver = "csi.holdfast.dev" }
			w.servers(c.servers, map[string]int64{"node-a": 100 * gib})
			class := &storage.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "shared"}, Provisioner: "csi.holdfast.dev", Parameters: map[string]string{"shared": "true"}}
			maps.Copy(class.Parameters, c.parameters)
			if _, err := w.theirs.StorageV1().StorageClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			w.waiting("big", class.Name, "50Gi")
			w.leads()
			var told []string
			w.until("the event", func() bool {
				select {
				case e := <-w.events.Events:
					told = append(told, e)
				default:
				}
				return slices.Contains(told, "Warning NoRoom 50Gi is asked for, and "+c.want)
			})
		})
	}
}
