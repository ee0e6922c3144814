package inmemory

import (
	"context"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/agent"
	"github.com/holdfast-storage/holdfast/api/convert"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// The hosts of two NFS servers.
const (
	ServerA = "shop.a.nfs.holdfast.dev"
	ServerB = "team.b.nfs.holdfast.dev"
)

// CephPool is the host of a Ceph pool, which has the name of the pool of all hosts in memory.
const CephPool = "memory.ceph.holdfast.dev"

// Exporter is a host whose volumes are used by other nodes: as exports of an NFS server, unless it is of an engine of Ceph.
type Exporter struct {
	*Host
	Engine v1beta1.Engine
}

func (e Exporter) exported(v *backend.Volume, err error) (*backend.Volume, error) {
	if v == nil {
		return v, err
	}
	cluster := backend.Ceph{FSID: "11111111-2222-3333-4444-555555555555", Monitors: []string{"v2:10.0.0.1:3300"}, User: "holdfast-node"}
	switch id := string(v.ID); e.Engine {
	case v1beta1.EngineRBD:
		v.Access = backend.Access{RBD: &backend.RBD{Cluster: cluster, Pool: "pool", Image: id}}
	case v1beta1.EngineCephFS:
		v.Access = backend.Access{CephFS: &backend.CephFS{Cluster: cluster, FileSystem: "cephfs", Path: "/volumes/holdfast/" + id}}
		v.FSType = v1beta1.CephFSType
	default:
		v.Access = backend.Access{NFS: &backend.NFS{Path: "/" + id}}
	}
	return v, err
}

// Create exports what it creates.
func (e Exporter) Create(ctx context.Context, spec backend.VolumeSpec) (*backend.Volume, error) {
	return e.exported(e.Host.Create(ctx, spec))
}

// Get finds it exported.
func (e Exporter) Get(ctx context.Context, id backend.ID) (*backend.Volume, error) {
	return e.exported(e.Host.Get(ctx, id))
}

// Restore exports what it restores.
func (e Exporter) Restore(ctx context.Context, snapshot backend.ID, spec backend.VolumeSpec) (*backend.Volume, error) {
	return e.exported(e.Host.Restore(ctx, snapshot, spec))
}

// Clone exports the clone.
func (e Exporter) Clone(ctx context.Context, source backend.ID, spec backend.VolumeSpec) (*backend.Volume, error) {
	return e.exported(e.Host.Clone(ctx, source, spec))
}

// Expand leaves it exported.
func (e Exporter) Expand(ctx context.Context, id backend.ID, size backend.Size) (*backend.Volume, error) {
	return e.exported(e.Host.Expand(ctx, id, size))
}

// ClientOf returns the client that Opens has named.
func (e Exporter) ClientOf(_ context.Context, _ backend.ID, known []string) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if slices.Contains(known, e.client) {
		return "", nil
	}
	return e.client, nil
}

// Servers starts agents of NFS servers beside those of nodes, under a controller that knows all.
func (w *Cluster) Servers(sizes map[string]int64, nodes map[string]int64) map[string]*Host {
	w.Helper()
	all := map[string]*Host{}
	w.Allow("shop", "team")
	w.Address = "10.96.0.7"
	for name, size := range sizes {
		all[name] = NewHost(size)
		w.Agent(name, Exporter{Host: all[name]})
	}
	w.Address = ""
	maps.Copy(all, w.Hosts(nodes))
	for name := range sizes {
		w.Ready(name)
	}
	return all
}

// CephPool starts the agent of a Ceph pool of an engine, under a controller that knows it once it has started.
func (w *Cluster) CephPool(size int64, engine v1beta1.Engine) *Host {
	w.Helper()
	host := NewHost(size)
	pools := w.Pools
	w.Pools = []agent.Pool{{Name: pools[0].Name, Path: "ceph", Engine: convert.ToEngine(engine)}}
	w.Agent(CephPool, Exporter{host, engine})
	w.Pools = pools
	return host
}

// Allow has the StorageCluster allow servers in namespaces, and makes it if there is none.
func (w *Cluster) Allow(namespaces ...string) {
	w.Helper()
	clusters := w.Ours.HoldfastV1beta1().StorageClusters()
	c, err := clusters.Get(w.Context(), "holdfast", metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		c = &v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: "holdfast"}, Spec: v1beta1.StorageClusterSpec{NFS: v1beta1.NFSSpec{Namespaces: namespaces}}}
		_, err = clusters.Create(w.Context(), c, metav1.CreateOptions{})
	case err == nil:
		c.Spec.NFS.Namespaces = namespaces
		_, err = clusters.Update(w.Context(), c, metav1.UpdateOptions{})
	}
	check.OK(w, err)
}

// SharedSpec asks for a shared volume.
func SharedSpec(name string, size int64, server string, nodes ...string) backend.VolumeSpec {
	s := Spec(name, size, nodes...)
	s.Shared, s.Server = true, server
	return s
}
