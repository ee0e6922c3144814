package provisioner

import (
	"slices"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

// persistent returns the PersistentVolume of a volume. A volume of a ReadOnlyMany claim is not mounted read-only: its
// data has to be written first.
func (p *Provisioner) persistent(o controller.ProvisionOptions, v *backend.Volume, address string) *core.PersistentVolume {
	policy := p.ReclaimPolicy
	if o.StorageClass.ReclaimPolicy != nil {
		policy = *o.StorageClass.ReclaimPolicy
	}
	options := o.StorageClass.MountOptions
	if len(options) == 0 {
		options = p.MountOptions
	}
	mode := core.PersistentVolumeFilesystem
	annotations := map[string]string{
		v1beta1.NFSServerAnnotation: p.Identity, v1beta1.NFSStoreAnnotation: p.journal.store, v1beta1.NFSVolumeAnnotation: string(v.ID),
		v1beta1.OnDeleteAnnotation: v.Labels[v1beta1.OnDeleteLabel], v1beta1.GIDAnnotation: v.Labels[v1beta1.GIDLabel],
	}
	return &core.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: o.PVName, Annotations: given(annotations)},
		Spec: core.PersistentVolumeSpec{
			Capacity:                      core.ResourceList{core.ResourceStorage: *v1beta1.Quantity(v.Size)},
			AccessModes:                   slices.Clone(o.PVC.Spec.AccessModes),
			PersistentVolumeReclaimPolicy: policy,
			MountOptions:                  slices.Clone(options),
			VolumeMode:                    &mode,
			PersistentVolumeSource:        core.PersistentVolumeSource{NFS: &core.NFSVolumeSource{Server: address, Path: p.Path(v.ID)}},
		},
	}
}

// owns says whether this server, with the data that it has now, created a PersistentVolume.
func (p *Provisioner) owns(v *core.PersistentVolume) bool {
	return v.Annotations[v1beta1.ProvisionedByAnnotation] == p.Name && v.Annotations[v1beta1.NFSServerAnnotation] == p.Identity && v.Annotations[v1beta1.NFSStoreAnnotation] == p.journal.store
}
