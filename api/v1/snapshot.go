package v1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Snapshot is a point-in-time copy of a volume, on the volume's node. Its name is the snapshot's ID.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=hfs,categories=holdfast
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=.spec.node
// +kubebuilder:selectablefield:JSONPath=.spec.source
// +kubebuilder:selectablefield:JSONPath=.spec.group.name
// +kubebuilder:selectablefield:JSONPath=.status.phase
// +kubebuilder:printcolumn:name=Volume,type=string,JSONPath=.spec.source
// +kubebuilder:printcolumn:name=Node,type=string,JSONPath=.spec.node
// +kubebuilder:printcolumn:name=Pool,type=string,JSONPath=.status.pool
// +kubebuilder:printcolumn:name=Size,type=string,JSONPath=.status.columns.size
// +kubebuilder:printcolumn:name=Used,type=string,JSONPath=.status.columns.used
// +kubebuilder:printcolumn:name=Phase,type=string,JSONPath=.status.phase
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=.metadata.creationTimestamp
// +kubebuilder:printcolumn:name=Group,type=string,priority=1,JSONPath=.spec.group.name
// +kubebuilder:printcolumn:name=Mode,type=string,priority=1,JSONPath=.status.mode
// +kubebuilder:printcolumn:name=FS,type=string,priority=1,JSONPath=.status.fsType
// +kubebuilder:printcolumn:name=Healthy,type=string,priority=1,JSONPath=.status.conditions[?(@.type=="Healthy")].status
// +kubebuilder:printcolumn:name=Error,type=string,priority=1,JSONPath=.status.error.message
// +kubebuilder:validation:XValidation:rule=`self.metadata.name.matches('^[a-z0-9][a-z0-9-]{0,62}$')`,message="metadata.name is the ID: 1 to 63 of a-z, 0-9 and -, not beginning with -"
type Snapshot struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   SnapshotSpec   `json:"spec"`
	Status SnapshotStatus `json:"status,omitzero"`

	// DecodeError is for Unreadable. It is no field of the object.
	DecodeError string `json:"-"`
}

// SnapshotSpec is what is asked for. Once made, nothing of it changes.
//
// +kubebuilder:validation:XValidation:rule=`has(self.group) == has(oldSelf.group) && (!has(self.group) || self.group == oldSelf.group)`,fieldPath=.group,message="cannot be changed; make another snapshot"
// +kubebuilder:validation:XValidation:rule=`!has(oldSelf.deletion) || has(self.deletion) && self.deletion == oldSelf.deletion`,fieldPath=.deletion,message="a request to delete cannot be changed or taken back"
// +kubebuilder:validation:XValidation:rule=`!has(self.group) || self.source in self.group.sources`,fieldPath=.group.sources,message="they must have the source of this snapshot among them"
type SnapshotSpec struct {
	// Name is what the caller calls the snapshot; the object's name is derived from it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule=`size(bytes(self)) <= 4096`,message="at most 4096 bytes are allowed"
	// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message="cannot be changed; make another snapshot"
	Name string `json:"name"`
	// Source is the Volume that is copied.
	// +kubebuilder:validation:Pattern=`^[a-z0-9][a-z0-9-]{0,62}$`
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message="cannot be changed; make another snapshot"
	Source string `json:"source"`
	// Node has the volume, and then the snapshot, on its disk.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message="cannot be changed; make another snapshot"
	Node string `json:"node"`
	// Group is set when several volumes are copied at one instant. Each member has all of it, so that the agent can
	// make the group from any.
	// +optional
	Group *SnapshotGroup `json:"group,omitempty"`
	// Deletion asks for the data to be removed. Without it a deleted object is only forgotten: the data stays, and the
	// object is written again. Only the controller may set it.
	// +optional
	Deletion *DeletionRequest `json:"deletion,omitempty"`
}

// SnapshotGroup asks for copies of several volumes of one node at one instant.
type SnapshotGroup struct {
	// Name is what the caller calls the group.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule=`size(bytes(self)) <= 4096`,message="at most 4096 bytes are allowed"
	Name string `json:"name"`
	// Sources are the Volumes that are copied.
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9][a-z0-9-]{0,62}$`
	// +kubebuilder:validation:items:MaxLength=63
	Sources []string `json:"sources"`
}

// SnapshotStatus is what exists. Only the agent of the snapshot's node writes it, and the controller when the node is gone.
type SnapshotStatus struct {
	// +optional
	Phase Phase `json:"phase,omitempty"`
	// Size is the smallest size of a volume restored from the snapshot, in bytes.
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`
	// Used is what the snapshot keeps from being freed, at most, in bytes.
	// +optional
	Used *resource.Quantity `json:"used,omitempty"`
	// +optional
	Mode Mode `json:"mode,omitempty"`
	// FSType is that of the volume.
	// +optional
	FSType string `json:"fsType,omitempty"`
	// Pool that holds the snapshot.
	// +optional
	Pool string `json:"pool,omitempty"`
	// PoolID is the identity of that pool. Another pool of the same name does not have the snapshot.
	// +optional
	PoolID string `json:"poolID,omitempty"`
	// Group is the ID of the group that the snapshot was made in.
	// +optional
	Group string `json:"group,omitempty"`
	// Created is the instant whose content the snapshot has.
	// +optional
	Created *metav1.MicroTime `json:"created,omitempty"`
	// Error is how the last operation ended, if badly.
	// +optional
	Error *Error `json:"error,omitempty"`
	// Conditions are Ready and Healthy.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// ObservedGeneration is the generation of the spec that this status answers.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Columns repeats numbers the way people read them.
	// +optional
	Columns SnapshotColumns `json:"columns,omitzero"`
}

// SnapshotColumns is what kubectl prints; SetColumns makes it from the numbers beside it.
type SnapshotColumns struct {
	// +optional
	Size string `json:"size,omitempty"`
	// +optional
	Used string `json:"used,omitempty"`
}

// SnapshotList is a list of snapshots.
//
// +kubebuilder:object:root=true
type SnapshotList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Snapshot `json:"items"`
}
