package cluster

import (
	"context"
	"fmt"
	"path"
	"slices"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/kube"
)

// The indexes find the PersistentVolumes of a volume, regardless of their names.
const (
	byHandle = "handle"
	byExport = "export" // those for any NFS server with this path or one in it, which an administrator may have written
)

// listenToPersistentVolumes caches the handle or the path, the claim and the labels of each PersistentVolume.
func (w *watches) listenToPersistentVolumes(b *Backend) error {
	informer := b.Watches.Cluster.Core().V1().PersistentVolumes().Informer()
	if err := informer.AddIndexers(cache.Indexers{byHandle: func(o any) ([]string, error) {
		if pv, ok := o.(*core.PersistentVolume); ok && pv.Spec.CSI != nil {
			return []string{pv.Spec.CSI.VolumeHandle}, nil
		}
		return nil, nil
	}, byExport: func(o any) (paths []string, _ error) {
		if pv, ok := o.(*core.PersistentVolume); ok && pv.Spec.NFS != nil {
			for at := path.Clean("/" + pv.Spec.NFS.Path); at != "/"; at = path.Dir(at) {
				paths = append(paths, at)
			}
		}
		return paths, nil
	}}); err != nil {
		return err
	}
	w.persistent = informer.GetIndexer()
	return kube.Hear(&w.heard, cache.NewTypedSharedIndexInformer[*core.PersistentVolume](informer), cache.TypedResourceEventHandlerFuncs[*core.PersistentVolume]{})
}

// persistentOf returns the PersistentVolumes that lead to a volume.
func (b *Backend) persistentOf(v *v1beta1.Volume) (all []*core.PersistentVolume) {
	found, _ := b.watches.persistent.ByIndex(byHandle, v.Name) // the indexes exist
	for _, o := range found {
		if pv := o.(*core.PersistentVolume); b.Driver == "" || pv.Spec.CSI.Driver == b.Driver {
			all = append(all, pv)
		}
	}
	if v.Status.Access == nil || v.Status.Access.NFS == nil {
		return all
	}
	found, _ = b.watches.persistent.ByIndex(byExport, path.Clean("/"+v.Status.Access.NFS.Path))
	for _, o := range found {
		all = append(all, o.(*core.PersistentVolume))
	}
	return all
}

// HasPersistent says whether there is a PersistentVolume of a volume: by its handle, its name, or the name of which it was made. The
// one for the pod that copies a volume goes with that pod. What is not in the cache may be there.
func (b *Backend) HasPersistent(v *v1beta1.Volume) bool {
	found, _ := b.watches.persistent.ByIndex(byHandle, v.Name) // the indexes exist
	for _, name := range []string{v.Name, v.Spec.Labels[v1beta1.PersistentVolumeLabel]} {
		if pv, exists, _ := b.watches.persistent.GetByKey(name); exists {
			found = append(found, pv)
		}
	}
	return slices.ContainsFunc(found, func(o any) bool { return o.(*core.PersistentVolume).Labels[v1beta1.CopyLabel] == "" })
}

// unbound refuses to delete a volume while an existing claim is bound to it, through any PersistentVolume: the claim must
// be deleted first.
func (b *Backend) unbound(ctx context.Context, v *v1beta1.Volume) error {
	for _, pv := range b.persistentOf(v) {
		ref := pv.Spec.ClaimRef
		if ref == nil {
			continue
		}
		claim, err := b.Kubernetes.CoreV1().PersistentVolumeClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return fmt.Errorf("%w: whether claim %s/%s still has volume %s: %w", backend.ErrUnavailable, ref.Namespace, ref.Name, v.Name, err)
		case claim.Namespace == b.Namespace && claim.Labels[v1beta1.CopyLabel] != "":
			continue // it ends with the volume (operator/volumecopy)
		case claim.UID == ref.UID && claim.Spec.VolumeName == pv.Name:
			return fmt.Errorf("%w: volume %s is the volume of claim %s/%s, by PersistentVolume %s: delete the claim, and the volume is deleted as its class says",
				backend.ErrPrecondition, v.Name, ref.Namespace, ref.Name, pv.Name)
		}
	}
	return nil
}
