package cluster

import (
	"cmp"
	"context"
	"errors"
	"slices"

	coordination "k8s.io/api/coordination/v1"
	"k8s.io/client-go/tools/cache"

	watch "github.com/holdfast-storage/holdfast/api/client/informers/api/v1beta1"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/kube"
)

// The indexes of the caches.
const (
	byNode  = "node"
	byGroup = "group"
)

// watches has the informer of each kind.
type watches struct {
	volumes    watch.VolumeIndexInformer
	snapshots  watch.SnapshotIndexInformer
	nodes      watch.StorageNodeIndexInformer
	clusters   watch.StorageClusterIndexInformer
	servers    watch.NFSServerIndexInformer
	persistent cache.Indexer // PersistentVolumes, stripped
	heard      kube.Heard
}

func (w *watches) prepare(b *Backend) error {
	kinds := b.Watches.Holdfast.Holdfast().V1beta1()
	w.volumes = watch.ToTypedVolumeInformer(kinds.Volumes()).TypedInformer()
	w.snapshots = watch.ToTypedSnapshotInformer(kinds.Snapshots()).TypedInformer()
	w.nodes = watch.ToTypedStorageNodeInformer(kinds.StorageNodes()).TypedInformer()
	w.clusters = watch.ToTypedStorageClusterInformer(kinds.StorageClusters()).TypedInformer()
	w.servers = watch.ToTypedNFSServerInformer(kinds.NFSServers()).TypedInformer()
	return errors.Join(w.volumes.AddTypedIndexers(volumeIndexers), w.snapshots.AddTypedIndexers(snapshotIndexers),
		w.listen(b), w.listenToLeases(b, b.Watches.Cluster.Coordination().V1().Leases().Informer()), w.listenToPersistentVolumes(b))
}

var (
	volumeIndexers = cache.TypedIndexers[*v1beta1.Volume]{
		byNode: func(v *v1beta1.Volume) ([]string, error) { return []string{v.Spec.Node}, nil },
	}
	snapshotIndexers = cache.TypedIndexers[*v1beta1.Snapshot]{
		byNode: func(s *v1beta1.Snapshot) ([]string, error) { return []string{s.Spec.Node}, nil },
		byGroup: func(s *v1beta1.Snapshot) ([]string, error) {
			if s.Spec.Group == nil {
				return nil, nil
			}
			id, err := backend.IDFor(s.Spec.Group.Name)
			if err != nil {
				return nil, nil // such a group cannot be requested
			}
			return []string{string(id)}, nil
		},
	}
)

func (w *watches) listen(b *Backend) error {
	volumes := kube.Hear(&w.heard, w.volumes, watch.VolumeHandlerFuncs{
		AddFunc:    func(v *v1beta1.Volume) { b.sawVolume(nil, v) },
		UpdateFunc: b.sawVolume,
		DeleteFunc: func(d watch.DeletedVolume) {
			if v := d.OptionalObj; v != nil {
				b.sawVolume(v, nil)
			}
		},
	})
	snapshots := kube.Hear(&w.heard, w.snapshots, watch.SnapshotHandlerFuncs{
		AddFunc:    func(s *v1beta1.Snapshot) { b.snapshots.changed(s, false) },
		UpdateFunc: func(_, s *v1beta1.Snapshot) { b.snapshots.changed(s, false) },
		DeleteFunc: func(d watch.DeletedSnapshot) {
			if s := d.OptionalObj; s != nil {
				b.snapshots.changed(s, true)
			}
		},
	})
	nodes := kube.Hear(&w.heard, w.nodes, watch.StorageNodeHandlerFuncs{
		AddFunc:    func(n *v1beta1.StorageNode) { b.reservations.reported(n); b.nodeChanged(n.Name) },
		UpdateFunc: func(_, n *v1beta1.StorageNode) { b.reservations.reported(n) },
		DeleteFunc: func(d watch.DeletedStorageNode) { b.nodeChanged(d.GetName()) },
	})
	// The others are looked up.
	return errors.Join(volumes, snapshots, nodes, kube.Hear(&w.heard, w.clusters, watch.StorageClusterHandlerFuncs{}), kube.Hear(&w.heard, w.servers, watch.NFSServerHandlerFuncs{}))
}

// sawVolume handles the change of a volume, after the caches were updated.
func (b *Backend) sawVolume(old, now *v1beta1.Volume) {
	b.reservations.saw(old, now)
	b.volumes.changed(cmp.Or(now, old), now == nil)
}

func (w *watches) listenToLeases(b *Backend, leases cache.SharedIndexInformer) error {
	err := leases.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		cache.DefaultWatchErrorHandler(ctx, r, err)
		b.liveness.disconnected()
	})
	if err != nil {
		return err
	}
	return kube.Hear(&w.heard, cache.NewTypedSharedIndexInformer[*coordination.Lease](leases), cache.TypedResourceEventHandlerFuncs[*coordination.Lease]{
		AddFunc:    b.liveness.saw,
		UpdateFunc: func(_, l *coordination.Lease) { b.liveness.saw(l) },
		DeleteFunc: func(d cache.DeletedObject[*coordination.Lease]) { b.liveness.deleted(d.GetName()) },
	})
}

// cachedIn looks up objects by their name.
func cachedIn[T object](store cache.Store) func(string) T {
	return func(name string) T { return kube.InStore[T](store, name) }
}

func (b *Backend) allVolumes() []*v1beta1.Volume {
	return kube.AllIn[*v1beta1.Volume](b.watches.volumes.GetStore())
}

func (b *Backend) allSnapshots() []*v1beta1.Snapshot {
	return kube.AllIn[*v1beta1.Snapshot](b.watches.snapshots.GetStore())
}

// allNodes returns the nodes in no order.
func (b *Backend) allNodes() []*v1beta1.StorageNode {
	return kube.AllIn[*v1beta1.StorageNode](b.watches.nodes.GetStore())
}

func byName(x, y *v1beta1.StorageNode) int { return cmp.Compare(x.Name, y.Name) }

func (b *Backend) node(name string) *v1beta1.StorageNode {
	return kube.InStore[*v1beta1.StorageNode](b.watches.nodes.GetStore(), name)
}

// VolumesOn returns the Volumes of a node, created on disk or not.
func (b *Backend) VolumesOn(node string) []*v1beta1.Volume {
	all, _ := b.watches.volumes.GetTypedIndexer().ByTypedIndex(byNode, node) // the index exists
	return all
}

// SnapshotsOn returns the Snapshots of a node, taken or not.
func (b *Backend) SnapshotsOn(node string) []*v1beta1.Snapshot {
	all, _ := b.watches.snapshots.GetTypedIndexer().ByTypedIndex(byNode, node) // the index exists
	return all
}

// groupObjects returns the members of a group, which are on one node. What an agent has written is none where its source is elsewhere,
// or members that the controller has written are.
func (b *Backend) groupObjects(id backend.ID) []*v1beta1.Snapshot {
	all, _ := b.watches.snapshots.GetTypedIndexer().ByTypedIndex(byGroup, string(id)) // the index exists
	adopted := func(o *v1beta1.Snapshot) bool { return o.Labels[v1beta1.AdoptedLabel] != "" }
	own := v1beta1.Find(all, func(o *v1beta1.Snapshot) bool { return !adopted(o) })
	return slices.DeleteFunc(slices.Clone(all), func(o *v1beta1.Snapshot) bool {
		source := kube.InStore[*v1beta1.Volume](b.watches.volumes.GetStore(), o.Spec.SourceRef.Name)
		return adopted(o) && (own != nil && (*own).Spec.Node != o.Spec.Node || source != nil && source.Spec.Node != o.Spec.Node)
	})
}
