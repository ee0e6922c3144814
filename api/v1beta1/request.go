package v1beta1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// DeletionRequest requests the deletion of the data behind an object, and says who requested it, when and why.
//
// +kubebuilder:validation:XValidation:rule=`self.requestedAt > timestamp('1970-01-01T00:00:00Z')`,fieldPath=.requestedAt,message="it must be a time such as 2026-11-24T03:00:00.000000Z"
type DeletionRequest struct {
	// uid of the object. A request in a copy of the object has the UID of another one, and no effect.
	// +required
	UID types.UID `json:"uid"`
	// requestedBy is the program or the user that requested it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	RequestedBy string `json:"requestedBy"`
	// requestedAt is when, such as 2026-11-24T03:00:00.000000Z.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9][.][0-9]{6}(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	RequestedAt metav1.MicroTime `json:"requestedAt"`
	// reason is why.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`
}

// NewDeletionRequest requests the deletion of the data behind the object of a UID, now.
func NewDeletionRequest(uid types.UID, by, reason string) *DeletionRequest {
	return &DeletionRequest{UID: uid, RequestedBy: by, RequestedAt: metav1.NowMicro(), Reason: reason}
}

// MergePatch writes the request into its object, and into no other of that name.
func (r *DeletionRequest) MergePatch() ([]byte, error) {
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": r.UID}, "spec": map[string]any{"deletion": r}})
}

// Discard is a request that an agent removes a volume or snapshot that was given up while the agent could not be reached.
type Discard struct {
	// kind of the object that was given up.
	// +required
	Kind SourceKind `json:"kind"`
	// name of the Volume or Snapshot.
	// +required
	// +kubebuilder:validation:Pattern=`^[a-z0-9][a-z0-9-]{0,62}$`
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// The UID is that of the object that was given up; another object of that name is not affected.
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
