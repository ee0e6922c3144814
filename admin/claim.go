package admin

import (
	"fmt"
	"slices"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// planClaim plans a new claim, or checks an existing one as Kubernetes does before it binds it.
func (o *observed) planClaim(b *binding) error {
	if o.claim == nil {
		b.newClaim, b.claim = true, &core.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: o.name},
			Spec: core.PersistentVolumeClaimSpec{
				AccessModes:      slices.Clone(b.pv.Spec.AccessModes),
				Resources:        core.VolumeResourceRequirements{Requests: core.ResourceList{core.ResourceStorage: b.pv.Spec.Capacity[core.ResourceStorage]}},
				VolumeName:       b.pv.Name,
				StorageClassName: new(b.pv.Spec.StorageClassName),
				VolumeMode:       b.pv.Spec.VolumeMode,
			},
		}
		return nil
	}
	if why := whyClaimUnfit(o.claim, b.pv); why != "" {
		return fmt.Errorf("claim %s exists and does not fit volume %s: %s. Choose another claim, or delete this one if it has no volume", o.claimKey(), o.volume.Name, why)
	}
	b.setName = o.claim.Spec.VolumeName == ""
	return nil
}

// whyClaimUnfit returns why a claim cannot be bound to a PersistentVolume, or "".
func whyClaimUnfit(c *core.PersistentVolumeClaim, pv *core.PersistentVolume) string {
	asked, has := c.Spec.Resources.Requests[core.ResourceStorage], pv.Spec.Capacity[core.ResourceStorage]
	switch {
	case c.Spec.VolumeName != "" && c.Spec.VolumeName != pv.Name:
		return fmt.Sprintf("it has PersistentVolume %s, not %s", c.Spec.VolumeName, pv.Name)
	case c.Status.Phase == core.ClaimBound && c.Spec.VolumeName == pv.Name:
		return ""
	case c.Spec.Selector != nil:
		return "its spec.selector chooses among PersistentVolumes"
	case c.Spec.VolumeName == "" && (c.Spec.DataSource != nil || c.Spec.DataSourceRef != nil):
		return "it requests the content of another source (spec.dataSourceRef)"
	case classOf(c) != pv.Spec.StorageClassName:
		return fmt.Sprintf("its storage class is %q, not %q", classOf(c), pv.Spec.StorageClassName)
	case modeOf(c.Spec.VolumeMode) != modeOf(pv.Spec.VolumeMode):
		return fmt.Sprintf("its volumeMode is %s, not %s", modeOf(c.Spec.VolumeMode), modeOf(pv.Spec.VolumeMode))
	case asked.Cmp(has) > 0:
		return fmt.Sprintf("it requests %s, and the volume has %s", asked.String(), has.String())
	}
	for _, mode := range c.Spec.AccessModes {
		if !slices.Contains(pv.Spec.AccessModes, mode) {
			return fmt.Sprintf("its access modes are %v, and those of PersistentVolume %s are %v", c.Spec.AccessModes, pv.Name, pv.Spec.AccessModes)
		}
	}
	return ""
}

func modeOf(m *core.PersistentVolumeMode) core.PersistentVolumeMode {
	if m == nil {
		return core.PersistentVolumeFilesystem
	}
	return *m
}

func classOf(c *core.PersistentVolumeClaim) string {
	if c.Spec.StorageClassName != nil {
		return *c.Spec.StorageClassName
	}
	return c.Annotations[core.BetaStorageClassAnnotation]
}
