package agent

import (
	"context"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	storagewatch "k8s.io/client-go/informers/storage/v1"

	holdfast "github.com/holdfast-storage/holdfast/api/client/informers"
	watch "github.com/holdfast-storage/holdfast/api/client/informers/api/v1beta1"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
)

// watches watches the objects of this node only.
type watches struct {
	volumes     watch.VolumeIndexInformer
	snapshots   watch.SnapshotIndexInformer
	node        watch.StorageNodeIndexInformer
	nodes       watch.StorageNodeIndexInformer             // all; nil where they have no users of their own
	attachments storagewatch.VolumeAttachmentIndexInformer // nil where users are not confined to what is attached
	starters    []func(context.Context)
	heard       kube.Heard
}

func (w *watches) prepare(a *Agent) error {
	only := func(field string) holdfast.SharedInformerOption {
		selector := fields.OneTermEqualSelector(field, a.Node).String()
		return holdfast.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = selector })
	}
	things := holdfast.NewSharedInformerFactoryWithOptions(a.Client, 0, only("spec.node"), holdfast.WithTransform(kube.Slim))
	nodes := holdfast.NewSharedInformerFactoryWithOptions(a.Client, 0, only("metadata.name"), holdfast.WithTransform(kube.Slim))
	w.volumes = watch.ToTypedVolumeInformer(things.Holdfast().V1beta1().Volumes()).TypedInformer()
	w.snapshots = watch.ToTypedSnapshotInformer(things.Holdfast().V1beta1().Snapshots()).TypedInformer()
	w.node = watch.ToTypedStorageNodeInformer(nodes.Holdfast().V1beta1().StorageNodes()).TypedInformer()
	w.starters = append(w.starters, things.StartWithContext, nodes.StartWithContext)
	var err error
	if a.NodeUsers != nil {
		all := holdfast.NewSharedInformerFactoryWithOptions(a.Client, 0, holdfast.WithTransform(kube.Slim))
		w.nodes = watch.ToTypedStorageNodeInformer(all.Holdfast().V1beta1().StorageNodes()).TypedInformer()
		w.starters = append(w.starters, all.StartWithContext)
		err = kube.Hear(&w.heard, w.nodes, a.nodeUserListener())
		if a.NodeUsers.Confined() {
			kubernetes := informers.NewSharedInformerFactoryWithOptions(a.Kubernetes, 0, informers.WithTransform(kube.Slim))
			w.attachments = storagewatch.ToTypedVolumeAttachmentInformer(kubernetes.Storage().V1().VolumeAttachments()).TypedInformer()
			w.starters = append(w.starters, kubernetes.StartWithContext)
			err = errors.Join(err, kube.Hear(&w.heard, w.attachments, a.attachmentListener()))
		}
	}
	return errors.Join(
		err,
		kube.Hear(&w.heard, w.volumes, a.volumeListener()),
		kube.Hear(&w.heard, w.snapshots, a.snapshotListener()),
		kube.Hear(&w.heard, w.node, a.nodeListener()),
	)
}

func (w *watches) start(ctx context.Context) error {
	for _, start := range w.starters {
		start(ctx)
	}
	return w.heard.Wait(ctx)
}

func (a *Agent) volumeListener() watch.VolumeHandlerFuncs {
	return watch.VolumeHandlerFuncs{
		AddFunc: func(v *v1beta1.Volume) { a.loop.Enqueue(key{v1beta1.SourceVolume, v.Name}) },
		UpdateFunc: func(old, v *v1beta1.Volume) {
			if old.Status.Phase != v.Status.Phase || v1beta1.Bytes(old.Status.Size) != v1beta1.Bytes(v.Status.Size) {
				a.node.change()
			}
			attached := old.Annotations[v1beta1.AttachedAnnotation] != v.Annotations[v1beta1.AttachedAnnotation] ||
				old.Annotations[v1beta1.AttachedSinceAnnotation] != v.Annotations[v1beta1.AttachedSinceAnnotation]
			if calls(old, v, v.Status.Conditions) || old.IsBeingPopulated() != v.IsBeingPopulated() || old.IsCopied() != v.IsCopied() || attached {
				a.loop.Retry(key{v1beta1.SourceVolume, v.Name})
			}
		},
		DeleteFunc: func(d watch.DeletedVolume) {
			a.node.change()
			a.loop.Enqueue(key{v1beta1.SourceVolume, d.GetName()})
		},
	}
}

func (a *Agent) snapshotListener() watch.SnapshotHandlerFuncs {
	return watch.SnapshotHandlerFuncs{
		AddFunc: func(s *v1beta1.Snapshot) { a.loop.Enqueue(key{v1beta1.SourceSnapshot, s.Name}) },
		UpdateFunc: func(old, s *v1beta1.Snapshot) {
			if old.Status.Phase != s.Status.Phase {
				a.node.change()
			}
			if !calls(old, s, s.Status.Conditions) {
				return
			}
			a.loop.Retry(key{v1beta1.SourceSnapshot, s.Name})
			for _, m := range a.siblings(s) { // when the deletion of the last member is requested, all members can be deleted
				a.loop.Retry(key{v1beta1.SourceSnapshot, m.Name})
			}
		},
		DeleteFunc: func(d watch.DeletedSnapshot) {
			a.node.change()
			a.loop.Enqueue(key{v1beta1.SourceSnapshot, d.GetName()})
		},
	}
}

// calls says whether a change of an object needs a reconcile: all do, except the writes of this agent.
func calls(old, now metav1.Object, conditions []metav1.Condition) bool {
	switch {
	case old.GetUID() != now.GetUID(), old.GetGeneration() != now.GetGeneration():
		return true
	case (old.GetDeletionTimestamp() == nil) != (now.GetDeletionTimestamp() == nil):
		return true
	case !slices.Contains(now.GetFinalizers(), v1beta1.AgentFinalizer):
		return now.GetDeletionTimestamp() == nil
	}
	return writtenOff(conditions)
}

// writtenOff says whether the controller has marked this node as down.
func writtenOff(conditions []metav1.Condition) bool {
	ready := meta.FindStatusCondition(conditions, v1beta1.ReadyCondition)
	return ready != nil && (ready.Reason == v1beta1.ReasonNodeDown || ready.Reason == v1beta1.ReasonNodeGone)
}

// volumeObject returns the newest known version of an object, from the cache or from this agent's last write; nil if
// there is none.
func (a *Agent) volumeObject(name string) *v1beta1.Volume {
	o := kube.InStore[*v1beta1.Volume](a.watches.volumes.GetStore(), name)
	if o == nil {
		return nil
	}
	return a.volumes.Newest(o)
}

func (a *Agent) snapshotObject(name string) *v1beta1.Snapshot {
	o := kube.InStore[*v1beta1.Snapshot](a.watches.snapshots.GetStore(), name)
	if o == nil {
		return nil
	}
	return a.snapshots.Newest(o)
}

func (a *Agent) nodeObject() *v1beta1.StorageNode {
	return kube.InStore[*v1beta1.StorageNode](a.watches.node.GetStore(), a.Node)
}
