package provisioner

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

// useCSI refers to the CSI driver, which serves the same volumes and can do more.
const useCSI = "use a StorageClass of the CSI driver " + v1beta1.DriverName

// checkClaim refuses claims that this provisioner can never satisfy.
func checkClaim(c *core.PersistentVolumeClaim) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%w claim %s/%s: %s", backend.ErrInvalid, c.Namespace, c.Name, fmt.Sprintf(format, args...))
	}
	switch spec := c.Spec; {
	case spec.Selector != nil:
		return refuse("spec.selector chooses among volumes that exist, and this one would be new; leave it out")
	case spec.VolumeMode != nil && *spec.VolumeMode != core.PersistentVolumeFilesystem:
		return refuse("spec.volumeMode is %s, and an NFS volume can only be %s; %s for a block device", *spec.VolumeMode, core.PersistentVolumeFilesystem, useCSI)
	case spec.DataSource != nil:
		return refuse("spec.dataSource is a %s, and volumes of this class are empty at first; %s for snapshots and clones", backend.Quote(spec.DataSource.Kind), useCSI)
	case spec.DataSourceRef != nil:
		return refuse("spec.dataSourceRef is a %s, and volumes of this class are empty at first; %s for snapshots and clones", backend.Quote(spec.DataSourceRef.Kind), useCSI)
	case spec.VolumeAttributesClassName != nil && *spec.VolumeAttributesClassName != "":
		return refuse("spec.volumeAttributesClassName is only for CSI volumes; leave it out")
	}
	if slices.Contains(c.Spec.AccessModes, core.ReadWriteOncePod) {
		return refuse("the access mode %s cannot be enforced: Kubernetes checks it for CSI volumes only, and any host may mount an NFS export; %s, or request %s", core.ReadWriteOncePod, useCSI, core.ReadWriteOnce)
	}
	return nil
}

// checkClass refuses settings that would be ignored.
func checkClass(c *storage.StorageClass) error {
	if len(c.AllowedTopologies) > 0 {
		return fmt.Errorf("%w StorageClass %s: allowedTopologies has no meaning here, since an NFS volume can be used on every node; leave it out", backend.ErrInvalid, c.Name)
	}
	if c.AllowVolumeExpansion != nil && *c.AllowVolumeExpansion {
		return fmt.Errorf("%w StorageClass %s: allowVolumeExpansion is true, and plain NFS volumes cannot grow; leave it out, or %s", backend.ErrInvalid, c.Name, useCSI)
	}
	for _, entry := range c.MountOptions { // which may hold several
		for option := range strings.SplitSeq(entry, ",") {
			if err := v1beta1.CheckNFSOption(option); err != nil {
				return fmt.Errorf("%w StorageClass %s: %w", backend.ErrInvalid, c.Name, err)
			}
		}
	}
	return nil
}

// sizeOf reads the size that a claim requests.
func sizeOf(c *core.PersistentVolumeClaim) (backend.Size, error) {
	required, err := bytesOf(c, "requests", c.Spec.Resources.Requests)
	if err != nil {
		return backend.Size{}, err
	}
	limit, err := bytesOf(c, "limits", c.Spec.Resources.Limits)
	switch {
	case err != nil:
		return backend.Size{}, err
	case required == 0:
		return backend.Size{}, fmt.Errorf("%w claim %s/%s: spec.resources.requests.storage is missing", backend.ErrInvalid, c.Namespace, c.Name)
	case limit > 0 && required > limit:
		return backend.Size{}, fmt.Errorf("%w claim %s/%s: spec.resources.requests.storage %d is above limits.storage %d", backend.ErrInvalid, c.Namespace, c.Name, required, limit)
	}
	return backend.Size{Required: required, Limit: limit}, nil
}

func bytesOf(c *core.PersistentVolumeClaim, field string, of core.ResourceList) (int64, error) {
	q, ok := of[core.ResourceStorage]
	switch {
	case !ok:
		return 0, nil
	case q.Sign() <= 0:
		return 0, fmt.Errorf("%w claim %s/%s: spec.resources.%s.storage is %s; it must be above 0", backend.ErrInvalid, c.Namespace, c.Name, field, backend.Quote(q.String()))
	case q.Cmp(*resource.NewQuantity(math.MaxInt64, resource.BinarySI)) > 0:
		return 0, fmt.Errorf("%w claim %s/%s: spec.resources.%s.storage is %s; at most %d bytes can be requested", backend.ErrOutOfRange, c.Namespace, c.Name, field, backend.Quote(q.String()), int64(math.MaxInt64))
	}
	return q.Value(), nil
}

// specFor returns the spec of the volume for a claim and its class.
func (p *Provisioner) specFor(name string, c *core.PersistentVolumeClaim, class *storage.StorageClass) (backend.VolumeSpec, error) {
	none := backend.VolumeSpec{}
	want, err := parseParameters(class.Parameters)
	if err != nil {
		return none, fmt.Errorf("StorageClass %s: %w", class.Name, err)
	}
	if err := checkClass(class); err != nil {
		return none, err
	}
	if err := checkClaim(c); err != nil {
		return none, err
	}
	size, err := sizeOf(c)
	if err != nil {
		return none, err
	}
	labels := map[string]string{
		v1beta1.NFSServerLabel: p.Identity, v1beta1.OnDeleteLabel: string(want.onDelete), ClaimUIDLabel: string(c.UID),
		v1beta1.ClaimNamespaceLabel: c.Namespace, v1beta1.ClaimNameLabel: c.Name, v1beta1.PersistentVolumeLabel: p.persistentName(name),
	}
	if want.gid == "" {
		labels[ModeLabel] = anybodyMode
	}
	maps.Copy(labels, given(map[string]string{v1beta1.GIDLabel: want.gid, SquashLabel: want.squash}))
	return backend.VolumeSpec{Name: name, Size: size, Mode: backend.Filesystem, Inodes: want.inodes, Labels: labels}, nil
}

// anybodyMode makes a volume without a group writable for every user of a pod, as users of NFS provisioners expect. The
// setgid bit gives new files the group of the directory.
const anybodyMode = "2777"

// given leaves out empty values.
func given(labels map[string]string) map[string]string {
	maps.DeleteFunc(labels, func(_, value string) bool { return value == "" })
	return labels
}
