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

	// DecodeError is for Unreadable. It is no field of the object.
	DecodeError string `json:"-"`
}

// StorageNodeSpec is what is asked of the agent beside Volumes and Snapshots. Only the controller may add to it.
type StorageNodeSpec struct {
	// Discard lists what was given up while the agent could not be reached. The agent removes it from the disk if it is
	// there, and then the entry.
	// +optional
	// +listType=atomic
	Discard []Discard `json:"discard,omitempty"`
	// Restore lists deleted volumes to take out of the trash. The agent removes each entry when it is done, and writes its
	// error into one that cannot be.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Restore []RestoreRequest `json:"restore,omitempty"`
	// ReplacePools lists pools that are given up with all that they hold, so that another one may begin in their place.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	ReplacePools []PoolReplacement `json:"replacePools,omitempty"`
}

// RestoreRequest asks for a deleted volume to be taken out of the trash.
//
// +kubebuilder:validation:XValidation:rule=`!has(self.requestedAt) || self.requestedAt > timestamp('1970-01-01T00:00:00Z')`,fieldPath=.requestedAt,message="it must be a time such as 2026-11-24T03:00:00.000000Z"
type RestoreRequest struct {
	// Name of the Volume.
	// +kubebuilder:validation:Pattern=`^[a-z0-9][a-z0-9-]{0,62}$`
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// RequestedBy is the user who asked.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	RequestedBy string `json:"requestedBy,omitempty"`
	// RequestedAt is when, such as 2026-11-24T03:00:00.000000Z.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9][.][0-9]{6}(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	RequestedAt *metav1.MicroTime `json:"requestedAt,omitempty"`
	// Error says why it cannot be done. The agent does not try it again; ask anew without the error.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Error string `json:"error,omitempty"`
}

// PoolReplacement gives up a pool that is known by its ID.
type PoolReplacement struct {
	// Name of the pool.
	Name string `json:"name"`
	// ID of the pool that is given up, as status.pools has it. Of a pool with another ID this says nothing.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id"`
}

// MostAddresses are told of one node.
const MostAddresses = 64

// StorageNodeStatus is what the agent reports. That the agent lives is told by its Lease.
type StorageNodeStatus struct {
	// Version of the agent.
	// +optional
	Version string `json:"version,omitempty"`
	// Addresses of the node, those of its bridges and tunnels included: NFS servers know it by them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	Addresses []string `json:"addresses,omitempty"`
	// Pools of the node; the first is the one for volumes that name none.
	// +optional
	// +listType=map
	// +listMapKey=name
	Pools []Pool `json:"pools,omitempty"`
	// Trash lists deleted volumes that can still be restored, the last deleted first; of many, the first 100.
	// +optional
	// +listType=atomic
	Trash []TrashedVolume `json:"trash,omitempty"`
	// InlineVolumes is how many inline ephemeral volumes of pods are on the disks. They have no Volume object.
	// +optional
	InlineVolumes *int32 `json:"inlineVolumes,omitempty"`
	// InlineVolumesAllowed says whether the agent that runs makes more of them.
	// +optional
	InlineVolumesAllowed *bool `json:"inlineVolumesAllowed,omitempty"`
	// Conditions are Ready; Healthy, of the pools' file systems; and SharedVolumes: whether shared volumes can be mounted
	// on the node.
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
	// ID is the identity of the pool, which is written in it. It stays known while the pool is out of reach.
	// +optional
	ID string `json:"id,omitempty"`
	// Generation counts how often the pool was opened. One of the same ID with a lower number is an older copy.
	// +optional
	Generation int64 `json:"generation,omitempty"`
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
	// Reason says in a word what is wrong with the pool, such as NotMounted or WrongPool.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message says what is wrong with the pool and what to do. Empty means that the pool can be used.
	// +optional
	Message string `json:"message,omitempty"`
}

// TrashedVolume is a deleted volume that can still be restored.
type TrashedVolume struct {
	// Name of the Volume that it was.
	Name string `json:"name"`
	// +optional
	Pool string `json:"pool,omitempty"`
	// Claim is NAMESPACE/NAME of the claim that the volume was made for.
	// +optional
	Claim string `json:"claim,omitempty"`
	// +optional
	Size resource.Quantity `json:"size"`
	// Deleted is when the volume was deleted.
	Deleted metav1.Time `json:"deleted"`
	// Expires is when it is removed for good; sooner where its room is needed.
	Expires metav1.Time `json:"expires"`
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
