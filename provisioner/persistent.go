package provisioner

import (
	"context"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

// persistentName returns the name of the PersistentVolume of a volume. It ends with the server: an admission policy
// refuses others to this server, and another refuses the binding of claims that are not for it.
func (p *Provisioner) persistentName(volume string) string {
	return volume + "." + v1beta1.NodeOfServer(p.Identity)
}

// volumeName returns the name of the volume of a PersistentVolume. Earlier releases gave it to the PersistentVolume too.
func (p *Provisioner) volumeName(persistent string) string {
	return strings.TrimSuffix(persistent, "."+v1beta1.NodeOfServer(p.Identity))
}

// findPersistent asks the API server for the PersistentVolume of a volume, which may be of an earlier release.
func (p *Provisioner) findPersistent(ctx context.Context, volume string) (*core.PersistentVolume, error) {
	pv, err := p.Client.CoreV1().PersistentVolumes().Get(ctx, p.persistentName(volume), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return p.Client.CoreV1().PersistentVolumes().Get(ctx, volume, metav1.GetOptions{})
	}
	return pv, err
}

// persistent returns the PersistentVolume of a volume. A volume of a ReadOnlyMany claim is not mounted read-only: its
// data has to be written first.
func (p *Provisioner) persistent(o controller.ProvisionOptions, v *backend.Volume) *core.PersistentVolume {
	options := o.StorageClass.MountOptions
	if len(options) == 0 {
		options = p.MountOptions
	}
	if nfs := v.Access.NFS; nfs != nil {
		options = slices.Concat(options, v1beta1.NFSPortOption(nfs.Port))
	}
	annotations := map[string]string{
		v1beta1.NFSServerAnnotation: p.Identity, v1beta1.NFSStoreAnnotation: p.journal.store, v1beta1.NFSVolumeAnnotation: string(v.ID),
		v1beta1.OnDeleteAnnotation: v.Labels[v1beta1.OnDeleteLabel], v1beta1.GIDAnnotation: v.Labels[v1beta1.GIDLabel],
	}
	return &core.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: p.persistentName(o.PVName), Annotations: given(annotations)},
		Spec: core.PersistentVolumeSpec{
			Capacity:                      core.ResourceList{core.ResourceStorage: *v1beta1.Quantity(v.Size)},
			AccessModes:                   slices.Clone(o.PVC.Spec.AccessModes),
			PersistentVolumeReclaimPolicy: ptr.Deref(o.StorageClass.ReclaimPolicy, core.PersistentVolumeReclaimDelete),
			MountOptions:                  slices.Clone(options),
			VolumeMode:                    new(core.PersistentVolumeFilesystem),
			PersistentVolumeSource:        core.PersistentVolumeSource{NFS: &core.NFSVolumeSource{Server: p.Address, Path: p.Path(v.ID)}},
		},
	}
}

// owns says whether this server, with the data that it has now, created a PersistentVolume.
func (p *Provisioner) owns(v *core.PersistentVolume) bool {
	return v.Annotations[v1beta1.ProvisionedByAnnotation] == p.Name && v.Annotations[v1beta1.NFSServerAnnotation] == p.Identity && v.Annotations[v1beta1.NFSStoreAnnotation] == p.journal.store
}
