package inmemory

import (
	"context"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

// The hosts of two NFS servers.
const (
	ServerA = "shop.a.nfs.holdfast.dev"
	ServerB = "team.b.nfs.holdfast.dev"
)

// Exporter is a host whose volumes clients mount.
type Exporter struct{ *Host }

func exported(v *backend.Volume, err error) (*backend.Volume, error) {
	if v != nil {
		v.Access = backend.Access{NFS: &backend.NFS{Path: "/" + string(v.ID)}}
	}
	return v, err
}

// Create exports what it creates.
func (e Exporter) Create(ctx context.Context, spec backend.VolumeSpec) (*backend.Volume, error) {
	return exported(e.Host.Create(ctx, spec))
}

// Get finds it exported.
func (e Exporter) Get(ctx context.Context, id backend.ID) (*backend.Volume, error) {
	return exported(e.Host.Get(ctx, id))
}

// Restore exports what it restores.
func (e Exporter) Restore(ctx context.Context, snapshot backend.ID, spec backend.VolumeSpec) (*backend.Volume, error) {
	return exported(e.Host.Restore(ctx, snapshot, spec))
}

// Clone exports the clone.
func (e Exporter) Clone(ctx context.Context, source backend.ID, spec backend.VolumeSpec) (*backend.Volume, error) {
	return exported(e.Host.Clone(ctx, source, spec))
}

// Expand leaves it exported.
func (e Exporter) Expand(ctx context.Context, id backend.ID, size backend.Size) (*backend.Volume, error) {
	return exported(e.Host.Expand(ctx, id, size))
}

// Servers starts agents of NFS servers beside those of nodes, under a controller that knows all.
func (w *Cluster) Servers(sizes map[string]int64, nodes map[string]int64) map[string]*Host {
	w.Helper()
	all := map[string]*Host{}
	w.Allow("shop", "team")
	w.Address = "10.96.0.7"
	for name, size := range sizes {
		all[name] = NewHost(size)
		w.Agent(name, Exporter{all[name]})
	}
	w.Address = ""
	maps.Copy(all, w.Hosts(nodes))
	for name := range sizes {
		w.Ready(name)
	}
	return all
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
	if err != nil {
		w.Fatal(err)
	}
}

// SharedSpec asks for a shared volume.
func SharedSpec(name string, size int64, server string, nodes ...string) backend.VolumeSpec {
	s := Spec(name, size, nodes...)
	s.Shared, s.Server = true, server
	return s
}
