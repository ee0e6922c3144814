package v1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// StorageNode is what one node can store. Its name is the node's; its agent writes it.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=hfn,categories=holdfast
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=.status.conditions[?(@.type=="Ready")].status
// +kubebuilder:printcolumn:name=Pools,type=string,JSONPath=.status.columns.pools
// +kubebuilder:printcolumn:name=Capacity,type=string,JSONPath=.status.columns.capacity
// +kubebuilder:printcolumn:name=Promised,type=string,JSONPath=.status.columns.promised
// +kubebuilder:printcolumn:name=Used,type=string,JSONPath=.status.columns.used
// +kubebuilder:printcolumn:name=Volumes,type=integer,JSONPath=.status.columns.volumes
// +kubebuilder:printcolumn:name=Version,type=string,JSONPath=.status.version
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=.metadata.creationTimestamp
// +kubebuilder:printcolumn:name=Available,type=string,priority=1,JSONPath=.status.columns.available
// +kubebuilder:printcolumn:name=Message,type=string,priority=1,JSONPath=.status.conditions[?(@.type=="Ready")].message
type StorageNode struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec   StorageNodeSpec   `json:"spec,omitzero"`
	Status StorageNodeStatus `json:"status,omitzero"`
}

// StorageNodeSpec has nothing to be asked for yet.
type StorageNodeSpec struct{}

// StorageNodeStatus is what the agent reports. That the agent lives is told by its Lease.
type StorageNodeStatus struct {
	// Version of the agent.
	// +optional
	Version string `json:"version,omitempty"`
	// Pools of the node; the first is the one for volumes that name none.
	// +optional
	// +listType=map
	// +listMapKey=name
	Pools []Pool `json:"pools,omitempty"`
	// Conditions are Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Columns sums up the pools the way people read it.
	// +optional
	Columns StorageNodeColumns `json:"columns,omitzero"`
}

// Pool is the room of one pool in bytes. Of one that is out of reach the numbers are the last that were known.
type Pool struct {
	Name string `json:"name"`
	// +optional
	Path string `json:"path,omitempty"`
	// Engine is image or directory.
	// +optional
	Engine string `json:"engine,omitempty"`
	// Capacity of the file system.
	// +optional
	Capacity resource.Quantity `json:"capacity"`
	// Promised to volumes, snapshots and trash.
	// +optional
	Promised resource.Quantity `json:"promised"`
	// Used of the file system, by anyone.
	// +optional
	Used resource.Quantity `json:"used"`
	// Available is what can still be promised.
	// +optional
	Available resource.Quantity `json:"available"`
	// Smallest volume that can be made.
	// +optional
	Smallest resource.Quantity `json:"smallest"`
	// Largest volume that can be made.
	// +optional
	Largest resource.Quantity `json:"largest"`
	// Volumes that the pool holds.
	// +optional
	Volumes int32 `json:"volumes"`
	// Snapshots that the pool holds.
	// +optional
	Snapshots int32 `json:"snapshots"`
	// Message says what is wrong with the pool and what to do. Empty means that the pool can be used.
	// +optional
	Message string `json:"message,omitempty"`
}

// StorageNodeColumns is what kubectl prints; SetColumns makes it from the pools.
type StorageNodeColumns struct {
	// Pools is USABLE/ALL.
	// +optional
	Pools string `json:"pools,omitempty"`
	// +optional
	Capacity string `json:"capacity,omitempty"`
	// +optional
	Promised string `json:"promised,omitempty"`
	// +optional
	Used string `json:"used,omitempty"`
	// +optional
	Available string `json:"available,omitempty"`
	// +optional
	Volumes int32 `json:"volumes"`
}

// StorageNodeList is a list of nodes.
//
// +kubebuilder:object:root=true
type StorageNodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []StorageNode `json:"items"`
}
