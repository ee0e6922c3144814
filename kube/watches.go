package kube

import (
	"context"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	holdfastinformers "github.com/holdfast-storage/holdfast/api/client/informers"
)

// Watches are the informers of one process: each kind is watched and cached once, regardless of how many parts of the
// process use it. A part registers its indexes and handlers and then calls Start. Cached objects must not be modified.
type Watches struct {
	// Holdfast is for the kinds of Holdfast.
	Holdfast holdfastinformers.SharedInformerFactory
	// Cluster is for cluster-scoped kinds, and for objects in the namespace of Holdfast.
	Cluster informers.SharedInformerFactory
	// Everywhere is for objects of all namespaces, except events.
	Everywhere informers.SharedInformerFactory

	namespace string // of Holdfast
	start     func()
}

// NewWatches returns watches that stop when ctx ends.
func NewWatches(ctx context.Context, ours holdfast.Interface, theirs kubernetes.Interface, namespace string) *Watches {
	w := &Watches{
		Holdfast:   holdfastinformers.NewSharedInformerFactoryWithOptions(ours, 0, holdfastinformers.WithTransform(Slim)),
		Cluster:    informers.NewSharedInformerFactoryWithOptions(theirs, 0, informers.WithNamespace(namespace), informers.WithTransform(Slim)),
		Everywhere: informers.NewSharedInformerFactoryWithOptions(theirs, 0, informers.WithTransform(Slim)),
		namespace:  namespace,
	}
	w.start = func() {
		w.Holdfast.StartWithContext(ctx)
		w.Cluster.StartWithContext(ctx)
		w.Everywhere.StartWithContext(ctx)
	}
	return w
}

// Warnings returns the informer of the warnings of Holdfast of all namespaces: of each namespace the newest, without what
// is not shown.
func (w *Watches) Warnings() cache.SharedIndexInformer {
	return w.Everywhere.InformerFor(&core.Event{}, newWarnings(w.namespace))
}

// Start starts the informers that were requested since the last call. It does not wait for their initial list.
func (w *Watches) Start() { w.start() }

// Slim removes from an object, before it is cached, what no process of Holdfast reads: managed fields, which are half
// of it, and most fields of kinds of which a cluster has thousands.
func Slim(o any) (any, error) {
	switch o := o.(type) {
	case *core.PersistentVolumeClaim:
		return slimClaim(o), nil
	case *core.PersistentVolume:
		return slimPersistentVolume(o), nil
	case *core.Node:
		o.Status.Images, o.Status.VolumesInUse, o.Status.VolumesAttached = nil, nil, nil
	}
	if m, err := meta.Accessor(o); err == nil {
		m.SetManagedFields(nil)
	}
	return o, nil
}

func slimClaim(c *core.PersistentVolumeClaim) *core.PersistentVolumeClaim {
	return &core.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.Namespace, Name: c.Name, UID: c.UID, ResourceVersion: c.ResourceVersion, DeletionTimestamp: c.DeletionTimestamp, Labels: c.Labels,
		},
		Spec: core.PersistentVolumeClaimSpec{StorageClassName: c.Spec.StorageClassName, Resources: c.Spec.Resources, VolumeMode: c.Spec.VolumeMode, VolumeName: c.Spec.VolumeName},
		Status: core.PersistentVolumeClaimStatus{
			Phase: c.Status.Phase, Capacity: c.Status.Capacity, Conditions: c.Status.Conditions,
		},
	}
}

func slimPersistentVolume(pv *core.PersistentVolume) *core.PersistentVolume {
	slim := &core.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: pv.Name, UID: pv.UID, ResourceVersion: pv.ResourceVersion, Labels: pv.Labels},
		Spec:       core.PersistentVolumeSpec{ClaimRef: pv.Spec.ClaimRef},
	}
	if csi := pv.Spec.CSI; csi != nil {
		slim.Spec.CSI = &core.CSIPersistentVolumeSource{Driver: csi.Driver, VolumeHandle: csi.VolumeHandle}
	}
	if nfs := pv.Spec.NFS; nfs != nil {
		slim.Spec.NFS = &core.NFSVolumeSource{Path: nfs.Path}
	}
	return slim
}
