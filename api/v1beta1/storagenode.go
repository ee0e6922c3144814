package v1beta1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// StorageNode is what one node can store. Its name is the node's. It is for reading: the agent writes it, and the
// controller its requests to the agent.
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
// +kubebuilder:printcolumn:name=Available,type=string,JSONPath=.status.columns.available
// +kubebuilder:printcolumn:name=Volumes,type=integer,JSONPath=.status.columns.volumes
// +kubebuilder:printcolumn:name=Version,type=string,JSONPath=.status.version
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=.metadata.creationTimestamp
// +kubebuilder:printcolumn:name=Snapshots,type=string,priority=1,JSONPath=.status.columns.snapshots
// +kubebuilder:printcolumn:name=Message,type=string,priority=1,JSONPath=.status.conditions[?(@.type=="Ready")].message
type StorageNode struct {
	metav1.TypeMeta `json:",inline"`
	// metadata of the object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec has requests to the agent.
	// +optional
	Spec StorageNodeSpec `json:"spec,omitzero"`
	// status is what the agent reports; until then Ready is Unknown.
	// +optional
	// +default={"conditions": [{"type": "Ready", "status": "Unknown", "reason": "Pending", "message": "waiting for the agent", "lastTransitionTime": "1970-01-01T00:00:00Z"}]}
	Status StorageNodeStatus `json:"status,omitzero"`

	Decoding `json:"-"`
}

// StorageNodeSpec has requests to the agent beside Volumes and Snapshots. Only the controller may add to it.
type StorageNodeSpec struct {
	// discard lists volumes and snapshots that were given up while the agent could not be reached. The agent removes
	// each from the disk if it is there, and then the entry.
	// +optional
	// +listType=atomic
	Discard []Discard `json:"discard,omitempty"`
	// restore lists deleted volumes to take out of the trash. The agent removes each entry when it is done, and writes
	// the error into an entry that failed.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Restore []RestoreRequest `json:"restore,omitempty"`
	// replacePools lists pools that are given up with all that they hold, so that new ones may be created in their
	// place.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	ReplacePools []PoolReplacement `json:"replacePools,omitempty"`
	// fence shuts a node out of all Ceph clusters.
	// +optional
	Fence *Fence `json:"fence,omitempty"`
	// blocklist of a pool in a Ceph cluster lists the clients of nodes that are to be shut out of the cluster. They are
	// let in again when their entry is removed.
	// +optional
	// +listType=map
	// +listMapKey=node
	// +kubebuilder:validation:MaxItems=1024
	Blocklist []BlocklistRequest `json:"blocklist,omitempty"`
}

// RestoreRequest requests that a deleted volume is taken out of the trash.
//
// +kubebuilder:validation:XValidation:rule=`!has(self.requestedAt) || self.requestedAt > timestamp('1970-01-01T00:00:00Z')`,fieldPath=.requestedAt,message="it must be a time such as 2026-11-24T03:00:00.000000Z"
type RestoreRequest struct {
	// name of the Volume.
	// +required
	// +kubebuilder:validation:Pattern=`^[a-z0-9][a-z0-9-]{0,62}$`
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// requestedBy is the user who requested it.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	RequestedBy string `json:"requestedBy,omitempty"`
	// requestedAt is when, such as 2026-11-24T03:00:00.000000Z.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9][.][0-9]{6}(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	RequestedAt *metav1.MicroTime `json:"requestedAt,omitempty"`
	// error says why it failed. The agent does not retry it; write the request again without the error.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Error string `json:"error,omitempty"`
}

// PoolReplacement gives up a pool that is known by its ID.
type PoolReplacement struct {
	// name of the pool.
	// +required
	Name string `json:"name"`
	// id of the pool that is given up, as in status.pools. A pool with another ID is not affected.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id"`
}

// MostAddresses is the most that one node reports.
const MostAddresses = 64

// StorageNodeStatus is what the agent reports. Its Lease shows that the agent is alive.
type StorageNodeStatus struct {
	// version of the agent.
	// +optional
	Version string `json:"version,omitempty"`
	// addresses of the node, those of its bridges and tunnels included: NFS servers recognize the node by them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	Addresses []string `json:"addresses,omitempty"`
	// pools of the node; the first is the one for volumes that name none.
	// +optional
	// +listType=map
	// +listMapKey=name
	Pools []Pool `json:"pools,omitempty"`
	// trash lists deleted volumes that can still be restored, the last deleted first; at most 100.
	// +optional
	// +listType=atomic
	Trash []TrashedVolume `json:"trash,omitempty"`
	// inlineVolumes is how many inline ephemeral volumes of pods are on the disks. They have no Volume object.
	// +optional
	InlineVolumes *int32 `json:"inlineVolumes,omitempty"`
	// inlineVolumesAllowed says whether the running agent creates more of them.
	// +optional
	InlineVolumesAllowed *bool `json:"inlineVolumesAllowed,omitempty"`
	// cephClients of a node are the clients of its kernel through which it uses volumes in Ceph clusters. Each is written
	// before it is used, and removed when the kernel has it no more: when the node is lost, these are the clients to shut out.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	CephClients []CephClient `json:"cephClients,omitempty"`
	// cephVolumes of a node are the volumes in Ceph clusters that its kernel has a device or a mount of. Each is written
	// with the client before it is used, and removed when the kernel has it no more: until then, or until the node is shut
	// out, no other node gets a volume that one node at a time may use.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=4096
	// +kubebuilder:validation:items:MaxLength=63
	CephVolumes []string `json:"cephVolumes,omitempty"`
	// blocklist of a pool in a Ceph cluster is what the cluster has confirmed of spec.blocklist.
	// +optional
	// +listType=map
	// +listMapKey=node
	// +kubebuilder:validation:MaxItems=1024
	Blocklist []BlocklistEntry `json:"blocklist,omitempty"`
	// publicKey of a node is what pools in Ceph clusters encrypt the key of its user to.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	PublicKey string `json:"publicKey,omitempty"`
	// nodeUsers of a pool in a Ceph cluster are the users of those nodes that have one of their own.
	// +optional
	// +listType=map
	// +listMapKey=node
	// +kubebuilder:validation:MaxItems=1024
	NodeUsers []NodeUser `json:"nodeUsers,omitempty"`
	// conditions are Ready; Healthy, of the pools' file systems; SharedVolumes, RBDVolumes
	// and CephFSVolumes: whether such volumes can be used on the node; KeyRefused: that a Ceph cluster refuses a new key of
	// the pool; NodeUserRefused: that it refuses that of the nodes, or what they need; and Fenced: whether the node is shut out of all Ceph clusters, which is absent until it was to be.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the generation of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// columns sums up the pools in the form in which kubectl get prints them. It is no part of the API.
	// +optional
	Columns StorageNodeColumns `json:"columns,omitzero"`
}

// Pool is the capacity of one pool in bytes. If the pool is out of reach, the numbers are the last known ones.
type Pool struct {
	// name of the pool.
	// +required
	Name string `json:"name"`
	// id is the identity of the pool, which is written in it. It is kept while the pool is out of reach.
	// +optional
	ID string `json:"id,omitempty"`
	// generation counts how often the pool was opened. One of the same ID with a lower number is an older copy.
	// +optional
	Generation int64 `json:"generation,omitempty"`
	// path of its directory, or of where its device is mounted.
	// +optional
	Path string `json:"path,omitempty"`
	// engine of the pool.
	// +optional
	Engine Engine `json:"engine,omitempty"`
	// fileSystem below the pool, such as xfs.
	// +optional
	FileSystem string `json:"fileSystem,omitempty"`
	// snapshotCost is what a snapshot or a clone takes: Shared, milliseconds and no space until the volume is written to; or
	// Full, a copy of all that the volume has, during which a pod that uses it waits, for 10 seconds at most.
	// +optional
	SnapshotCost SnapshotCost `json:"snapshotCost,omitempty"`
	// capacity of the file system.
	// +optional
	Capacity resource.Quantity `json:"capacity"`
	// promised to volumes, snapshots and trash.
	// +optional
	Promised resource.Quantity `json:"promised"`
	// used of the file system, by all users.
	// +optional
	Used resource.Quantity `json:"used"`
	// available is what can still be promised.
	// +optional
	Available resource.Quantity `json:"available"`
	// smallest volume that can be created.
	// +optional
	Smallest resource.Quantity `json:"smallest"`
	// largest volume that can be created.
	// +optional
	Largest resource.Quantity `json:"largest"`
	// volumes that the pool holds.
	// +optional
	Volumes int32 `json:"volumes"`
	// snapshots that the pool holds.
	// +optional
	Snapshots int32 `json:"snapshots"`
	// reason says in one word what is wrong with the pool, such as NotMounted or WrongPool.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message says what is wrong with the pool and what to do. Empty means that the pool can be used.
	// +optional
	Message string `json:"message,omitempty"`
}

// SnapshotCost is what a snapshot or a clone takes.
// +kubebuilder:validation:Enum="";Shared;Full
type SnapshotCost string

const (
	// SnapshotShared takes milliseconds and no space, until the volume is written to.
	SnapshotShared SnapshotCost = "Shared"
	// SnapshotFull copies all that the volume has.
	SnapshotFull SnapshotCost = "Full"
)

// TrashedVolume is a deleted volume that can still be restored.
type TrashedVolume struct {
	// name of the Volume that it was.
	// +required
	Name string `json:"name"`
	// pool that holds it.
	// +optional
	Pool string `json:"pool,omitempty"`
	// claimRef names the claim that the volume was made for.
	// +optional
	ClaimRef *NamespacedReference `json:"claimRef,omitempty"`
	// size of the volume.
	// +optional
	Size resource.Quantity `json:"size"`
	// deletionTime is when the volume was deleted.
	// +required
	DeletionTime metav1.Time `json:"deletionTime"`
	// expirationTime is when it is removed for good; sooner where its space is needed.
	// +required
	ExpirationTime metav1.Time `json:"expirationTime"`
	// incomplete is set where the volume was deleted before all of its content had been copied into it.
	// +optional
	Incomplete bool `json:"incomplete,omitempty"`
}

// StorageNodeColumns is what kubectl prints; SetColumns computes it from the pools.
type StorageNodeColumns struct {
	// pools is USABLE/ALL.
	// +optional
	Pools string `json:"pools,omitempty"`
	// capacity of all pools.
	// +optional
	Capacity string `json:"capacity,omitempty"`
	// promised of all pools.
	// +optional
	Promised string `json:"promised,omitempty"`
	// used of all pools.
	// +optional
	Used string `json:"used,omitempty"`
	// available of all pools.
	// +optional
	Available string `json:"available,omitempty"`
	// volumes in all pools.
	// +optional
	Volumes int32 `json:"volumes"`
	// snapshots is what one takes, Shared or Full, as of status.pools.
	// +optional
	Snapshots string `json:"snapshots,omitempty"`
}

// StorageNodeList is a list of nodes.
//
// +kubebuilder:object:root=true
type StorageNodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// items of the list.
	Items []StorageNode `json:"items"`
}
