package v1beta1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Snapshot is a point-in-time copy of a volume, on the volume's node. Its name is the snapshot's ID. It is for reading:
// the controller and the agent write it.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=hfs,categories=holdfast
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=.spec.node
// +kubebuilder:selectablefield:JSONPath=.spec.sourceRef.name
// +kubebuilder:selectablefield:JSONPath=.spec.group.name
// +kubebuilder:selectablefield:JSONPath=.status.phase
// +kubebuilder:printcolumn:name=Volume,type=string,JSONPath=.spec.sourceRef.name
// +kubebuilder:printcolumn:name=Node,type=string,JSONPath=.spec.node
// +kubebuilder:printcolumn:name=Pool,type=string,JSONPath=.status.pool
// +kubebuilder:printcolumn:name=Size,type=string,JSONPath=.status.columns.size
// +kubebuilder:printcolumn:name=Used,type=string,JSONPath=.status.columns.used
// +kubebuilder:printcolumn:name=Phase,type=string,JSONPath=.status.phase
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=.metadata.creationTimestamp
// +kubebuilder:printcolumn:name=Group,type=string,priority=1,JSONPath=.spec.group.name
// +kubebuilder:printcolumn:name=Mode,type=string,priority=1,JSONPath=.status.mode
// +kubebuilder:printcolumn:name=FS,type=string,priority=1,JSONPath=.status.fsType
// +kubebuilder:printcolumn:name=Consistency,type=string,priority=1,JSONPath=.status.consistency
// +kubebuilder:printcolumn:name=Healthy,type=string,priority=1,JSONPath=.status.conditions[?(@.type=="Healthy")].status
// +kubebuilder:printcolumn:name=Error,type=string,priority=1,JSONPath=.status.error.message
// +kubebuilder:validation:XValidation:rule=`self.metadata.name.matches('^[a-z0-9][a-z0-9-]{0,62}$')`,message="metadata.name is the ID: 1 to 63 of a-z, 0-9 and -, not beginning with -"
type Snapshot struct {
	metav1.TypeMeta `json:",inline"`
	// metadata of the object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired snapshot.
	// +required
	Spec SnapshotSpec `json:"spec"`
	// status is what the agent of the node reports; until then Ready is Unknown.
	// +optional
	// +default={"conditions": [{"type": "Ready", "status": "Unknown", "reason": "Pending", "message": "waiting for the agent", "lastTransitionTime": "1970-01-01T00:00:00Z"}]}
	Status SnapshotStatus `json:"status,omitzero"`

	Decoding `json:"-"`
}

// SnapshotSpec is the desired snapshot. It cannot be changed after creation.
//
// +kubebuilder:validation:XValidation:rule=`has(self.group) == has(oldSelf.group) && (!has(self.group) || self.group == oldSelf.group)`,fieldPath=.group,message="cannot be changed; make another snapshot"
// +kubebuilder:validation:XValidation:rule=`!has(oldSelf.deletion) || has(self.deletion) && self.deletion == oldSelf.deletion`,fieldPath=.deletion,message="a request to delete cannot be changed or taken back"
// +kubebuilder:validation:XValidation:rule=`!has(self.group) || self.sourceRef.name in self.group.volumes`,fieldPath=.group.volumes,message="they must have the source of this snapshot among them"
type SnapshotSpec struct {
	// name is the caller's name of the snapshot; the object's name is derived from it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule=`size(bytes(self)) <= 4096`,message="at most 4096 bytes are allowed"
	// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message="cannot be changed; make another snapshot"
	Name string `json:"name"`
	// sourceRef names the Volume that is copied.
	// +required
	// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message="cannot be changed; make another snapshot"
	// +kubebuilder:validation:XValidation:rule=`self.kind == 'Volume'`,fieldPath=.kind,message="it must be Volume"
	SourceRef SourceReference `json:"sourceRef"`
	// node has the volume, and then the snapshot, on its disk.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message="cannot be changed; make another snapshot"
	Node string `json:"node"`
	// group is set when several volumes are copied at one instant. Each member has the full list, so that the agent can
	// create the group from any of them.
	// +optional
	Group *SnapshotGroup `json:"group,omitempty"`
	// deletion requests that the data is removed. Without it a deleted object is only forgotten: the data stays, and
	// the object is written again. Only the controller may set it.
	// +optional
	Deletion *DeletionRequest `json:"deletion,omitempty"`
}

// SnapshotGroup requests copies of several volumes of one node at one instant.
type SnapshotGroup struct {
	// name is the caller's name of the group.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule=`size(bytes(self)) <= 4096`,message="at most 4096 bytes are allowed"
	Name string `json:"name"`
	// volumes are those that are copied.
	// +required
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9][a-z0-9-]{0,62}$`
	// +kubebuilder:validation:items:MaxLength=63
	Volumes []string `json:"volumes"`
}

// SnapshotStatus is the observed state. Only the agent of the snapshot's node writes it, and the controller when the
// node is gone.
type SnapshotStatus struct {
	// phase sums the conditions up for people.
	// +optional
	Phase Phase `json:"phase,omitempty"`
	// size is the smallest size of a volume restored from the snapshot, in bytes.
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`
	// used is the most that the snapshot keeps from being freed, in bytes.
	// +optional
	Used *resource.Quantity `json:"used,omitempty"`
	// mode of the volume that was copied.
	// +optional
	Mode Mode `json:"mode,omitempty"`
	// fsType is that of the volume.
	// +optional
	FSType string `json:"fsType,omitempty"`
	// pool that holds the snapshot.
	// +optional
	Pool string `json:"pool,omitempty"`
	// poolID is the identity of that pool. Another pool of the same name does not have the snapshot.
	// +optional
	PoolID string `json:"poolID,omitempty"`
	// consistency is what the snapshot has of a volume that was in use.
	// +optional
	Consistency Consistency `json:"consistency,omitempty"`
	// group is the ID of the group that the snapshot was made in.
	// +optional
	Group string `json:"group,omitempty"`
	// creationTime is the instant whose content the snapshot has.
	// +optional
	CreationTime *metav1.MicroTime `json:"creationTime,omitempty"`
	// error is why the last operation failed.
	// +optional
	Error *Error `json:"error,omitempty"`
	// conditions are Ready and Healthy.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the generation of the spec that this status answers.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// columns has numbers in the form in which kubectl get prints them. It is no part of the API.
	// +optional
	Columns SnapshotColumns `json:"columns,omitzero"`
}

// Consistency is what a snapshot has of a volume that was in use. WrittenOut: its node wrote out all that was written before. Crash:
// what had reached the Ceph cluster or the NFS server, and not what its clients had still in memory, as after their power cut.
//
// +kubebuilder:validation:Enum=WrittenOut;Crash
type Consistency string

// The consistencies of snapshots.
const (
	WrittenOut      Consistency = "WrittenOut"
	CrashConsistent Consistency = "Crash"
)

// ConsistencyOn returns that of the snapshots on a node or site.
func ConsistencyOn(node string) Consistency {
	if IsSite(node) {
		return CrashConsistent
	}
	return WrittenOut
}

// SnapshotColumns is what kubectl prints; SetColumns makes it from the numbers beside it.
type SnapshotColumns struct {
	// size of the snapshot.
	// +optional
	Size string `json:"size,omitempty"`
	// used by the snapshot.
	// +optional
	Used string `json:"used,omitempty"`
}

// SnapshotList is a list of snapshots.
//
// +kubebuilder:object:root=true
type SnapshotList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// items of the list.
	Items []Snapshot `json:"items"`
}
