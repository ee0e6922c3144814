package v1beta1

import "k8s.io/apimachinery/pkg/api/resource"

// EphemeralSpec allows inline ephemeral volumes, those of volumes[].csi of a pod. Any user who may create pods may use
// them: no right to a StorageClass and no storage quota is checked. A generic ephemeral volume is a claim, and needs
// none of this.
type EphemeralSpec struct {
	// pools that they may be in. A volume that names none is in the first of these pools that its node has.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9][a-z0-9-]{0,62}$`
	Pools []string `json:"pools"`
	// maxSize of each. A volume that requests no size has 1Gi, or maxSize if that is less.
	// +required
	// +kubebuilder:validation:XValidation:rule=`isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('1Mi')) >= 0 && quantity(string(self)).compareTo(quantity('9223372036854775807')) <= 0`,message="it must be 1Mi to 9223372036854775807 bytes, such as 10Gi"
	MaxSize resource.Quantity `json:"maxSize"`
}
