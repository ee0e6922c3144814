package agent

import (
	"context"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	holdfast "github.com/holdfast-storage/holdfast/api/client/informers"
	holdfastv1 "github.com/holdfast-storage/holdfast/api/client/informers/api/v1"
	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/kube"
)

// watches brings the objects of this node, and no others.
type watches struct {
	volumes   holdfastv1.VolumeIndexInformer
	snapshots holdfastv1.SnapshotIndexInformer
	node      holdfastv1.StorageNodeIndexInformer
	starters  []func(context.Context)
	heard     []cache.DoneChecker // what exists was told to every listener
}

func (w *watches) prepare(a *Agent) error {
	only := func(field string) holdfast.SharedInformerOption {
		selector := fields.OneTermEqualSelector(field, a.Node).String()
		return holdfast.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = selector })
	}
	things := holdfast.NewSharedInformerFactoryWithOptions(a.Client, 0, only("spec.node"), holdfast.WithTransform(kube.Slim))
	nodes := holdfast.NewSharedInformerFactoryWithOptions(a.Client, 0, only("metadata.name"), holdfast.WithTransform(kube.Slim))
	w.volumes = holdfastv1.ToTypedVolumeInformer(things.Holdfast().V1().Volumes()).TypedInformer()
	w.snapshots = holdfastv1.ToTypedSnapshotInformer(things.Holdfast().V1().Snapshots()).TypedInformer()
	w.node = holdfastv1.ToTypedStorageNodeInformer(nodes.Holdfast().V1().StorageNodes()).TypedInformer()
	w.starters = append(w.starters, things.StartWithContext, nodes.StartWithContext)
	return errors.Join(
		hear(w, w.volumes, a.volumeListener()),
		hear(w, w.snapshots, a.snapshotListener()),
		hear(w, w.node, a.nodeListener()),
	)
}

func (w *watches) start(ctx context.Context) error {
	for _, start := range w.starters {
		start(ctx)
	}
	if !cache.WaitFor(ctx, "", w.heard...) {
		return context.Cause(ctx)
	}
	return nil
}

func hear[T cache.Object](w *watches, informer cache.TypedSharedIndexInformer[T], handler cache.TypedResourceEventHandlerFuncs[T]) error {
	registered, err := informer.AddTypedEventHandler(handler)
	if err == nil {
		w.heard = append(w.heard, registered.HasSyncedChecker())
	}
	return err
}

func (a *Agent) volumeListener() holdfastv1.VolumeHandlerFuncs {
	return holdfastv1.VolumeHandlerFuncs{
		AddFunc: func(v *v1.Volume) { a.work.add(key{v1.SourceVolume, v.Name}) },
		UpdateFunc: func(old, v *v1.Volume) {
			if old.Status.Phase != v.Status.Phase || v1.Bytes(old.Status.Size) != v1.Bytes(v.Status.Size) {
				a.node.change()
			}
			if calls(old, v, v.Status.Conditions) {
				a.work.again(key{v1.SourceVolume, v.Name})
			}
		},
		DeleteFunc: func(d holdfastv1.DeletedVolume) {
			a.node.change()
			a.work.add(key{v1.SourceVolume, d.GetName()})
		},
	}
}

func (a *Agent) snapshotListener() holdfastv1.SnapshotHandlerFuncs {
	return holdfastv1.SnapshotHandlerFuncs{
		AddFunc: func(s *v1.Snapshot) { a.work.add(key{v1.SourceSnapshot, s.Name}) },
		UpdateFunc: func(old, s *v1.Snapshot) {
			if old.Status.Phase != s.Status.Phase {
				a.node.change()
			}
			if !calls(old, s, s.Status.Conditions) {
				return
			}
			a.work.again(key{v1.SourceSnapshot, s.Name})
			for _, m := range a.siblings(s) { // the last member to go lets the others go
				a.work.again(key{v1.SourceSnapshot, m.Name})
			}
		},
		DeleteFunc: func(d holdfastv1.DeletedSnapshot) {
			a.node.change()
			a.work.add(key{v1.SourceSnapshot, d.GetName()})
		},
	}
}

// calls says whether a change of an object calls for work: all but what this agent has written itself.
func calls(old, now metav1.Object, conditions []metav1.Condition) bool {
	switch {
	case old.GetUID() != now.GetUID(), old.GetGeneration() != now.GetGeneration():
		return true
	case (old.GetDeletionTimestamp() == nil) != (now.GetDeletionTimestamp() == nil):
		return true
	case !slices.Contains(now.GetFinalizers(), v1.AgentFinalizer):
		return now.GetDeletionTimestamp() == nil
	}
	return writtenOff(conditions)
}

// writtenOff says whether the controller has given this node up while it was not heard of.
func writtenOff(conditions []metav1.Condition) bool {
	ready := meta.FindStatusCondition(conditions, v1.ReadyCondition)
	return ready != nil && (ready.Reason == v1.ReasonNodeDown || ready.Reason == v1.ReasonNodeGone)
}

// cached looks up an object; nil if there is none.
func cached[T any](informer cache.SharedIndexInformer, name string) *T {
	found, _, _ := informer.GetIndexer().GetByKey(name) // this index has no errors
	o, _ := found.(*T)
	return o
}

func listed[T any](informer cache.SharedIndexInformer) []*T {
	found := informer.GetIndexer().List()
	all := make([]*T, 0, len(found))
	for _, o := range found {
		all = append(all, o.(*T))
	}
	return all
}

func (a *Agent) volumeObject(name string) *v1.Volume {
	return cached[v1.Volume](a.watches.volumes, name)
}

func (a *Agent) snapshotObject(name string) *v1.Snapshot {
	return cached[v1.Snapshot](a.watches.snapshots, name)
}

func (a *Agent) nodeObject() *v1.StorageNode { return cached[v1.StorageNode](a.watches.node, a.Node) }
