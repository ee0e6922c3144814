package v1

import "k8s.io/apimachinery/pkg/api/resource"

// EphemeralSpec allows inline ephemeral volumes, those of volumes[].csi of a pod. Who may make pods may have them: no
// right to a StorageClass, and no quota of storage, is asked for. A generic ephemeral volume is a claim, and needs none
// of this.
type EphemeralSpec struct {
	// Pools that they may be in. One that names none is in the first of them that its node has.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9][a-z0-9-]{0,62}$`
	Pools []string `json:"pools"`
	// MaxSize of one of them. One that asks for no size has 1Gi, or this if it is less.
	// +kubebuilder:validation:XValidation:rule=`isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('1Mi')) >= 0 && quantity(string(self)).compareTo(quantity('9223372036854775807')) <= 0`,message="it must be 1Mi to 9223372036854775807 bytes, such as 10Gi"
	MaxSize resource.Quantity `json:"maxSize"`
}
