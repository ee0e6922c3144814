package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// DeletionRequest asks for the data behind an object to be removed: who asked, when and why.
//
// +kubebuilder:validation:XValidation:rule=`self.requestedAt > timestamp('1970-01-01T00:00:00Z')`,fieldPath=.requestedAt,message="it must be a time such as 2026-11-24T03:00:00.000000Z"
type DeletionRequest struct {
	// UID of the object. A request that came with a copy of the object is for another one.
	UID types.UID `json:"uid"`
	// RequestedBy is the program or the user that asked.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	RequestedBy string `json:"requestedBy"`
	// RequestedAt is when, such as 2026-11-24T03:00:00.000000Z.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9][.][0-9]{6}(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	RequestedAt metav1.MicroTime `json:"requestedAt"`
	// Reason is why.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`
}

// Discard asks an agent to remove what was given up while it could not be reached.
type Discard struct {
	Kind SourceKind `json:"kind"`
	// Name of the Volume or Snapshot.
	// +kubebuilder:validation:Pattern=`^[a-z0-9][a-z0-9-]{0,62}$`
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// The UID is that of the object that was given up; another object of that name is none of it.
	DeletionRequest `json:",inline"`
}

// DeletionRequested says whether there is a request to delete the data, made for this object.
func (o *Volume) DeletionRequested() bool { return o.Spec.Deletion.isFor(o.UID) }

// DeletionRequested says whether there is a request to delete the data, made for this object.
func (o *Snapshot) DeletionRequested() bool { return o.Spec.Deletion.isFor(o.UID) }

func (r *DeletionRequest) isFor(uid types.UID) bool {
	return r != nil && r.UID == uid && r.RequestedBy != "" && !r.RequestedAt.IsZero()
}

// Same says whether two entries are about the same object.
func (d Discard) Same(other Discard) bool {
	return d.Kind == other.Kind && d.Name == other.Name && d.UID == other.UID
}
