package v1beta1

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Volume is a volume on one node. Its name is the volume's ID. It is for reading: the controller and the agent write it.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=hfv,categories=holdfast
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=.spec.node
// +kubebuilder:selectablefield:JSONPath=.spec.pool
// +kubebuilder:selectablefield:JSONPath=.status.phase
// +kubebuilder:printcolumn:name=Namespace,type=string,JSONPath=.spec.claimRef.namespace
// +kubebuilder:printcolumn:name=Claim,type=string,JSONPath=.spec.claimRef.name
// +kubebuilder:printcolumn:name=Node,type=string,JSONPath=.spec.node
// +kubebuilder:printcolumn:name=Pool,type=string,JSONPath=.status.pool
// +kubebuilder:printcolumn:name=Size,type=string,JSONPath=.status.columns.size
// +kubebuilder:printcolumn:name=Used,type=string,JSONPath=.status.columns.used
// +kubebuilder:printcolumn:name=Phase,type=string,JSONPath=.status.phase
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=.metadata.creationTimestamp
// +kubebuilder:printcolumn:name=Mode,type=string,priority=1,JSONPath=.status.mode
// +kubebuilder:printcolumn:name=FS,type=string,priority=1,JSONPath=.status.fsType
// +kubebuilder:printcolumn:name=Healthy,type=string,priority=1,JSONPath=.status.conditions[?(@.type=="Healthy")].status
// +kubebuilder:printcolumn:name=Source,type=string,priority=1,JSONPath=.spec.sourceRef.name
// +kubebuilder:printcolumn:name=Copy,type=string,priority=1,JSONPath=.status.columns.copy
// +kubebuilder:printcolumn:name=Error,type=string,priority=1,JSONPath=.status.error.message
// +kubebuilder:validation:XValidation:rule=`self.metadata.name.matches('^[a-z0-9][a-z0-9-]{0,62}$')`,message="metadata.name is the ID: 1 to 63 of a-z, 0-9 and -, not beginning with -"
// +kubebuilder:validation:XValidation:rule=`!has(self.spec.size) || !has(oldSelf.spec.size) || !has(self.spec.size.required) || !has(oldSelf.spec.size.required) || quantity(string(self.spec.size.required)).compareTo(quantity(string(oldSelf.spec.size.required))) >= 0 || has(oldSelf.status) && has(oldSelf.status.size) && quantity(string(self.spec.size.required)).compareTo(quantity(string(oldSelf.status.size))) >= 0`,fieldPath=.spec.size.required,message="it may only grow, or go back to what the volume has"
type Volume struct {
	metav1.TypeMeta `json:",inline"`
	// metadata of the object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired volume.
	// +required
	Spec VolumeSpec `json:"spec"`
	// status is what the agent of the node reports; until then Ready is Unknown.
	// +optional
	// +default={"conditions": [{"type": "Ready", "status": "Unknown", "reason": "Pending", "message": "waiting for the agent", "lastTransitionTime": "1970-01-01T00:00:00Z"}]}
	Status VolumeStatus `json:"status,omitzero"`

	Decoding `json:"-"`
}

// VolumeSpec is the desired volume. A field that is left out leaves the choice to the node or the pool. After creation
// only the size may change, and only grow.
// ---
// The rules treat an empty value as left out, since a client in Go leaves it out when it writes an object back.
//
// +kubebuilder:validation:XValidation:rule=`has(self.claimRef) == has(oldSelf.claimRef) && (!has(self.claimRef) || self.claimRef == oldSelf.claimRef)`,fieldPath=.claimRef,message="cannot be changed; make another volume"
// +kubebuilder:validation:XValidation:rule=`(has(self.pool) ? self.pool : "") == (has(oldSelf.pool) ? oldSelf.pool : "")`,fieldPath=.pool,message="cannot be changed; make another volume"
// +kubebuilder:validation:XValidation:rule=`(has(self.mode) ? self.mode : "") == (has(oldSelf.mode) ? oldSelf.mode : "")`,fieldPath=.mode,message="cannot be changed; make another volume"
// +kubebuilder:validation:XValidation:rule=`(has(self.fsType) ? self.fsType : "") == (has(oldSelf.fsType) ? oldSelf.fsType : "")`,fieldPath=.fsType,message="cannot be changed; make another volume"
// +kubebuilder:validation:XValidation:rule=`(has(self.provisioning) ? self.provisioning : "") == (has(oldSelf.provisioning) ? oldSelf.provisioning : "")`,fieldPath=.provisioning,message="cannot be changed; make another volume"
// +kubebuilder:validation:XValidation:rule=`(has(self.mkfsOptions) ? self.mkfsOptions : []) == (has(oldSelf.mkfsOptions) ? oldSelf.mkfsOptions : [])`,fieldPath=.mkfsOptions,message="cannot be changed; make another volume"
// +kubebuilder:validation:XValidation:rule=`(has(self.inodes) ? self.inodes : 0) == (has(oldSelf.inodes) ? oldSelf.inodes : 0)`,fieldPath=.inodes,message="cannot be changed; make another volume"
// +kubebuilder:validation:XValidation:rule=`(has(self.labels) ? self.labels : {}) == (has(oldSelf.labels) ? oldSelf.labels : {})`,fieldPath=.labels,message="cannot be changed; make another volume"
// +kubebuilder:validation:XValidation:rule=`has(self.sourceRef) == has(oldSelf.sourceRef) && (!has(self.sourceRef) || self.sourceRef == oldSelf.sourceRef)`,fieldPath=.sourceRef,message="cannot be changed; make another volume"
// +kubebuilder:validation:XValidation:rule=`(has(self.populatedBy) ? self.populatedBy : "") == (has(oldSelf.populatedBy) ? oldSelf.populatedBy : "")`,fieldPath=.populatedBy,message="cannot be changed; make another volume"
// +kubebuilder:validation:XValidation:rule=`!has(self.populatedBy) || self.populatedBy == "" || has(self.sourceRef)`,fieldPath=.populatedBy,message="only a volume with a source is populated"
// +kubebuilder:validation:XValidation:rule=`!has(self.populatedBy) || self.populatedBy == "" || !has(self.shared) || !self.shared`,fieldPath=.populatedBy,message="a shared volume is made from its source by its server"
// +kubebuilder:validation:XValidation:rule=`(has(self.onNodeLoss) ? self.onNodeLoss : "") == (has(oldSelf.onNodeLoss) ? oldSelf.onNodeLoss : "")`,fieldPath=.onNodeLoss,message="cannot be changed; make another volume"
// +kubebuilder:validation:XValidation:rule=`(has(self.shared) ? self.shared : false) == (has(oldSelf.shared) ? oldSelf.shared : false)`,fieldPath=.shared,message="cannot be changed; make another volume"
// +kubebuilder:validation:XValidation:rule=`has(self.serverRef) == has(oldSelf.serverRef) && (!has(self.serverRef) || self.serverRef == oldSelf.serverRef)`,fieldPath=.serverRef,message="cannot be changed; make another volume"
// +kubebuilder:validation:XValidation:rule=`!has(self.shared) || !self.shared || self.node.matches('^[^.]+[.][^.]+[.]nfs[.]holdfast[.]dev$')`,fieldPath=.node,message="a shared volume is on an NFS server: it must be NAMESPACE.NAME.nfs.holdfast.dev"
// +kubebuilder:validation:XValidation:rule=`!has(self.serverRef) || has(self.shared) && self.shared`,fieldPath=.serverRef,message="only a shared volume has a server"
// +kubebuilder:validation:XValidation:rule=`!has(self.serverRef) || self.node == self.serverRef.__namespace__ + '.' + self.serverRef.name + '.nfs.holdfast.dev'`,fieldPath=.serverRef,message="spec.node must be NAMESPACE.NAME.nfs.holdfast.dev of the same server"
// +kubebuilder:validation:XValidation:rule=`!has(self.shared) || !self.shared || !has(self.mode) || self.mode != "Block"`,fieldPath=.mode,message="a shared volume cannot be a block volume"
// +kubebuilder:validation:XValidation:rule=`!has(self.shared) || !self.shared || !has(self.onNodeLoss) || self.onNodeLoss == ""`,fieldPath=.onNodeLoss,message="a shared volume is on a server, which is never given up"
// +kubebuilder:validation:XValidation:rule=`!has(oldSelf.deletion) || has(self.deletion) && self.deletion == oldSelf.deletion`,fieldPath=.deletion,message="a request to delete cannot be changed or taken back"
// +kubebuilder:validation:XValidation:rule=`has(self.size) || !has(oldSelf.size) || !has(oldSelf.size.required) && !has(oldSelf.size.limit)`,fieldPath=.size,message="cannot be removed"
type VolumeSpec struct {
	// name is the caller's name of the volume; the object's name is derived from it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule=`size(bytes(self)) <= 4096`,message="at most 4096 bytes are allowed"
	// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message="cannot be changed; make another volume"
	Name string `json:"name"`
	// claimRef names the claim that the volume was made for, for people.
	// +optional
	ClaimRef *NamespacedReference `json:"claimRef,omitempty"`
	// node whose disk has the volume.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message="cannot be changed; make another volume"
	Node string `json:"node"`
	// pool of the node. Empty means the first one.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9][a-z0-9-]{0,62}(\.[0-9]{1,2})?)?$`
	Pool string `json:"pool,omitempty"`
	// size that is requested.
	// +optional
	Size VolumeSize `json:"size,omitzero"`
	// mode in which pods use it.
	// +optional
	Mode Mode `json:"mode,omitempty"`
	// fsType is the file system that it is made with.
	// +optional
	FSType FSType `json:"fsType,omitempty"`
	// provisioning says when it takes its space.
	// +optional
	Provisioning Provisioning `json:"provisioning,omitempty"`
	// mkfsOptions are for the program that makes the file system.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=256
	MkfsOptions []string `json:"mkfsOptions,omitempty"`
	// inodes is the number of files the volume may hold.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Inodes int64 `json:"inodes,omitempty"`
	// labels are kept for the caller; any string may be a key or a value.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Labels map[string]string `json:"labels,omitempty"`
	// sourceRef names the source of the first content. Without one the volume is empty at first.
	// +optional
	SourceRef *SourceReference `json:"sourceRef,omitempty"`
	// populatedBy says who brings the content of the source. Empty means the agent, which has the source in the same pool.
	// Pod means that the volume is made empty, and that a pod copies the content. Only the controller may set it.
	// +optional
	PopulatedBy Populator `json:"populatedBy,omitempty"`
	// onNodeLoss says what happens to the volume when its node is gone for good. Empty means Retain.
	// +optional
	OnNodeLoss OnNodeLoss `json:"onNodeLoss,omitempty"`
	// shared volumes are on an NFS server and can be used by many nodes at once. Their spec.node is NAMESPACE.NAME.nfs.holdfast.dev.
	// +optional
	Shared bool `json:"shared,omitempty"`
	// serverRef names the NFSServer that the volume was requested on. Without it the choice is free.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`self.__namespace__.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$') && self.name.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')`,message="namespace and name must be names of lowercase letters, digits and -"
	ServerRef *NamespacedReference `json:"serverRef,omitempty"`
	// deletion requests that the data is removed. Without it a deleted object is only forgotten: the data stays, and
	// the object is written again. Only the controller may set it.
	// +optional
	Deletion *DeletionRequest `json:"deletion,omitempty"`
}

// Populator says who brings the content of a source. Empty means the agent of the volume.
// +kubebuilder:validation:Enum="";Pod
type Populator string

// PopulatedByPod is a volume whose source is in another pool: a pod copies the content.
const PopulatedByPod Populator = "Pod"

// SeenAttached is what is on record of a volume since it was attached to the node that has it now.
func (o *Volume) SeenAttached() *VolumeAttached {
	seen, is := o.Status.Attached, o.Annotations
	if seen == nil || seen.Node != is[AttachedAnnotation] || seen.Since != is[AttachedSinceAnnotation] {
		return nil
	}
	return seen
}

// IsComplete says whether the volume has the content that it was requested with. One that is not on a disk has not.
func (o *Volume) IsComplete() bool { return o.Status.CreationTime != nil && !o.IsBeingPopulated() }

// IsBeingPopulated says whether a pod still has to bring the content of the volume.
func (o *Volume) IsBeingPopulated() bool {
	return o.Spec.PopulatedBy == PopulatedByPod && !meta.IsStatusConditionTrue(o.Status.Conditions, PopulatedCondition)
}

// IsCopied says whether a pod has brought the content, and verified it.
func (o *Volume) IsCopied() bool { return o.Status.Copy != nil && o.Status.Copy.Phase == CopyComplete }

// LacksContent says whether the object has no word of a verified copy yet. The pool may know more: see HasContent.
func (o *Volume) LacksContent() bool { return o.IsBeingPopulated() && !o.IsCopied() }

// IsIncomplete says whether the volume was found on a disk without all of its content, which nothing brings any more. It
// does even while the volume is out of reach.
func (o *Volume) IsIncomplete() bool {
	return meta.IsStatusConditionFalse(o.Status.Conditions, CompleteCondition)
}

// HasContent says whether the pool of a volume that is being populated has recorded that it has all of its content: it was just
// verified, or the object is older than the content.
func (o *Volume) HasContent() bool {
	return meta.IsStatusConditionTrue(o.Status.Conditions, CompleteCondition)
}

// PoolName is the pool that has the volume, or will have it.
func (o *Volume) PoolName() string { return cmp.Or(o.Status.Pool, o.Spec.Pool) }

// NodeLossPolicy is OnNodeLoss, or what it means when it is empty.
func (s *VolumeSpec) NodeLossPolicy() OnNodeLoss { return cmp.Or(s.OnNodeLoss, RetainOnNodeLoss) }

// VolumeSize is the requested size: at least Required bytes, at most Limit. A value that is left out, or 0, requests
// nothing.
//
// +kubebuilder:validation:XValidation:rule=`!has(self.required) || (isQuantity(string(self.required)) && quantity(string(self.required)).compareTo(quantity('0')) >= 0 && quantity(string(self.required)).compareTo(quantity('9223372036854775807')) <= 0)`,fieldPath=.required,message="it must be 0 to 9223372036854775807 bytes, such as 10Gi"
// +kubebuilder:validation:XValidation:rule=`!has(self.limit) || (isQuantity(string(self.limit)) && quantity(string(self.limit)).compareTo(quantity('0')) >= 0 && quantity(string(self.limit)).compareTo(quantity('9223372036854775807')) <= 0)`,fieldPath=.limit,message="it must be 0 to 9223372036854775807 bytes, such as 10Gi"
// +kubebuilder:validation:XValidation:rule=`!has(self.required) || !has(self.limit) || quantity(string(self.limit)).compareTo(quantity('0')) == 0 || quantity(string(self.limit)).compareTo(quantity(string(self.required))) >= 0`,fieldPath=.limit,message="it must be 0 or at least required"
// +kubebuilder:validation:XValidation:rule=`!has(oldSelf.required) || has(self.required)`,fieldPath=.required,message="it cannot be removed"
// +kubebuilder:validation:XValidation:rule=`has(self.limit) == has(oldSelf.limit) && (!has(self.limit) || quantity(string(self.limit)).compareTo(quantity(string(oldSelf.limit))) == 0) || has(self.required) && (!has(oldSelf.required) || quantity(string(self.required)).compareTo(quantity(string(oldSelf.required))) > 0)`,fieldPath=.limit,message="it changes only when required grows"
type VolumeSize struct {
	// required is the least number of bytes.
	// +optional
	Required *resource.Quantity `json:"required,omitempty"`
	// limit is the largest number of bytes.
	// +optional
	Limit *resource.Quantity `json:"limit,omitempty"`
}

// OnNodeLoss says what happens to a volume whose node is gone for good. Empty means Retain.
// +kubebuilder:validation:Enum="";Retain;Delete
type OnNodeLoss string

const (
	// RetainOnNodeLoss keeps the object, so that a node that returns takes its volume back.
	RetainOnNodeLoss OnNodeLoss = "Retain"
	// DeleteOnNodeLoss gives the volume up, so that the claim gets a new, empty one elsewhere.
	DeleteOnNodeLoss OnNodeLoss = "Delete"
)

// VolumeStatus is the observed state. Only the agent of the volume's node writes it, and the controller when the node
// is gone, and what is said of it below.
type VolumeStatus struct {
	// phase sums the conditions up for people.
	// +optional
	Phase Phase `json:"phase,omitempty"`
	// size of the volume, in bytes.
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`
	// used is the space that the volume takes in its pool, in bytes.
	// +optional
	Used *resource.Quantity `json:"used,omitempty"`
	// fsType is the file system in an image; empty where there is none of its own.
	// +optional
	FSType string `json:"fsType,omitempty"`
	// fsSize is the size for which the file system in an image was made; if below size, it may have to be grown.
	// +optional
	FSSize *resource.Quantity `json:"fsSize,omitempty"`
	// mode in which pods use it.
	// +optional
	Mode Mode `json:"mode,omitempty"`
	// pool that holds the volume.
	// +optional
	Pool string `json:"pool,omitempty"`
	// poolID is the identity of that pool. Another pool of the same name does not have the volume.
	// +optional
	PoolID string `json:"poolID,omitempty"`
	// provisioning says when it takes its space.
	// +optional
	Provisioning Provisioning `json:"provisioning,omitempty"`
	// access says how the node reaches the volume.
	// +optional
	Access *VolumeAccess `json:"access,omitempty"`
	// sourceRef is what the content was actually created from.
	// +optional
	SourceRef *SourceReference `json:"sourceRef,omitempty"`
	// creationTime is when the volume was created on disk.
	// +optional
	CreationTime *metav1.MicroTime `json:"creationTime,omitempty"`
	// error is why the last operation failed.
	// +optional
	Error *Error `json:"error,omitempty"`
	// attached is what the agent of a pool in a Ceph cluster has seen since the volume was attached to a node.
	// +optional
	Attached *VolumeAttached `json:"attached,omitempty"`
	// copy is how far the content of a volume with spec.populatedBy is copied. Only the controller writes it.
	// +optional
	Copy *VolumeCopy `json:"copy,omitempty"`
	// conditions are Ready and Healthy; Populated of a volume with spec.populatedBy, which only the controller writes; and
	// Complete, which is False, of a volume that has only a part of its content, or True, of one that has all of it and whose
	// object says otherwise.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the generation of the spec that this status is based on.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// columns has numbers in the form in which kubectl get prints them. It is no part of the API.
	// +optional
	Columns VolumeColumns `json:"columns,omitzero"`
}

// VolumeAttached is whether the node that a volume is attached to is the only one whose kernel may have its image.
type VolumeAttached struct {
	// node that the volume is attached to.
	// +required
	Node string `json:"node"`
	// since when it is, as the annotation holdfast.dev/attached-since says.
	// +optional
	Since string `json:"since,omitempty"`
	// client is the address of one that has the image open and that the node has not recorded. The volume is not used before it has gone.
	// +optional
	Client string `json:"client,omitempty"`
}

// VolumeAccess says how a node reaches a volume. One field is set, or none when the volume is damaged.
//
// +kubebuilder:validation:XValidation:rule=`(has(self.image) ? 1 : 0) + (has(self.directory) ? 1 : 0) + (has(self.nfs) ? 1 : 0) + (has(self.rbd) ? 1 : 0) + (has(self.cephfs) ? 1 : 0) <= 1`,message="a volume has one of image, directory, nfs, rbd and cephfs"
type VolumeAccess struct {
	// image is the path of a disk image.
	// +optional
	Image string `json:"image,omitempty"`
	// directory is the path of a directory.
	// +optional
	Directory string `json:"directory,omitempty"`
	// nfs is the export that clients of a server mount.
	// +optional
	NFS *VolumeNFS `json:"nfs,omitempty"`
	// rbd is the image in a Ceph cluster.
	// +optional
	RBD *VolumeRBD `json:"rbd,omitempty"`
	// cephfs is the directory of a file system in a Ceph cluster.
	// +optional
	CephFS *VolumeCephFS `json:"cephfs,omitempty"`
}

// VolumeNFS is the export that clients of a server mount.
type VolumeNFS struct {
	// server is its address.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Server string `json:"server"`
	// port of the server; 2049 if left out.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
	// path of the volume there.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^/`
	Path string `json:"path"`
}

// VolumeCeph is a Ceph cluster, and the user as whom a node speaks to it. The key of that user is in a Secret.
type VolumeCeph struct {
	// fsid is the UUID of the cluster.
	// +required
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`
	// +kubebuilder:validation:MaxLength=36
	FSID string `json:"fsid"`
	// monitors of the cluster: v2:ADDRESS:PORT or v1:ADDRESS:PORT, for each messenger of each of them.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:Pattern=`^v[12]:([0-9.]+|[[][0-9a-fA-F:.]+[]]):[0-9]+$`
	Monitors []string `json:"monitors,omitempty"`
	// user of the node, without client.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	User string `json:"user"`
	// secure encrypts all that is sent.
	// +optional
	Secure bool `json:"secure,omitempty"`
}

// VolumeRBD is an image in a pool of a Ceph cluster.
type VolumeRBD struct {
	// cluster that has the pool.
	// +required
	Cluster VolumeCeph `json:"cluster"`
	// pool that has the image.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Pool string `json:"pool"`
	// namespace of the pool. Empty means the one without a name.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Namespace string `json:"namespace,omitempty"`
	// image is its name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Image string `json:"image"`
	// imageID is its identity, which a later image of the same name does not have.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ImageID string `json:"imageID,omitempty"`
}

// VolumeCephFS is a directory of a file system in a Ceph cluster.
type VolumeCephFS struct {
	// cluster that has the file system.
	// +required
	Cluster VolumeCeph `json:"cluster"`
	// filesystem is its name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	FileSystem string `json:"filesystem"`
	// path of the volume in it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^/`
	Path string `json:"path"`
}

// VolumeCopy is how far a pod has copied the content of a volume. Phase and bytesDone never go back: a pod that is started
// again skips what is there.
type VolumeCopy struct {
	// phase of the copy.
	// +required
	Phase CopyPhase `json:"phase"`
	// bytesDone is how much of bytesTotal is copied, or verified in the phase Verifying.
	// +optional
	// +kubebuilder:validation:Minimum=0
	BytesDone int64 `json:"bytesDone,omitempty"`
	// bytesTotal is the size of the content.
	// +optional
	// +kubebuilder:validation:Minimum=0
	BytesTotal int64 `json:"bytesTotal,omitempty"`
	// attempt is the number of the pod that copies, 0 before the first.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Attempt int32 `json:"attempt,omitempty"`
	// failures is how many pods in a row have failed without any progress.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Failures int32 `json:"failures,omitempty"`
	// message is what it waits for, or why it failed.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message,omitempty"`
	// checksum of the content, which is that of the source: sha256 and 64 hexadecimal digits.
	// +optional
	// +kubebuilder:validation:Pattern=`^(sha256:[0-9a-f]{64})?$`
	Checksum string `json:"checksum,omitempty"`
}

// CopyPhase is where a copy stands.
// +kubebuilder:validation:Enum=Pending;Copying;Verifying;Failed;Complete
type CopyPhase string

const (
	// CopyPending: no pod copies yet, and the message says why.
	CopyPending CopyPhase = "Pending"
	// CopyCopying: a pod copies.
	CopyCopying CopyPhase = "Copying"
	// CopyVerifying: a pod compares source and volume.
	CopyVerifying CopyPhase = "Verifying"
	// CopyFailed: it will not be tried again, and the message says why.
	CopyFailed CopyPhase = "Failed"
	// CopyComplete: all is copied and verified.
	CopyComplete CopyPhase = "Complete"
)

// String is phase and percentage, such as Copying 40%.
func (c *VolumeCopy) String() string {
	switch {
	case c == nil:
		return ""
	case c.Phase != CopyCopying && c.Phase != CopyVerifying, c.BytesTotal <= 0:
		return string(c.Phase)
	}
	return fmt.Sprintf("%s %d%%", c.Phase, c.Percent())
}

// Percent is how much of the phase is done.
func (c *VolumeCopy) Percent() int64 {
	if c.BytesTotal <= 0 {
		return 0
	}
	return int64(float64(min(c.BytesDone, c.BytesTotal)) / float64(c.BytesTotal) * 100)
}

// VolumeColumns is what kubectl prints; SetColumns computes it from the numbers beside it.
type VolumeColumns struct {
	// size of the volume.
	// +optional
	Size string `json:"size,omitempty"`
	// used by the volume.
	// +optional
	Used string `json:"used,omitempty"`
	// copy is how far its content is copied.
	// +optional
	Copy string `json:"copy,omitempty"`
}

// VolumeList is a list of volumes.
//
// +kubebuilder:object:root=true
type VolumeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// items of the list.
	Items []Volume `json:"items"`
}
