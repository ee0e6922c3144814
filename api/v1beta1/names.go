package v1beta1

import (
	"crypto/sha256"
	"fmt"
)

const (
	// DriverName is the CSI driver, and the provisioner of its classes.
	DriverName = "csi.holdfast.dev"
	// ProvisionerName is the provisioner of plain NFS volumes.
	ProvisionerName = "nfs.holdfast.dev"
	// DefaultNamespace is the namespace of an installation.
	DefaultNamespace = "holdfast-system"
	// ControllerName is the name of the workload, the account and the Lease of the controller, and its field manager.
	ControllerName = "holdfast-controller"
	// NodeName is the name of the DaemonSet of node pods, and of the ConfigMap that they read.
	NodeName = "holdfast-node"
	// LoopSetResource is the resource by which a pod that is not privileged gets loop devices from its node.
	LoopSetResource = "holdfast.dev/loop-set"
)

// The labels of the objects that Holdfast makes, as Kubernetes recommends them.
const (
	NameLabel      = "app.kubernetes.io/name"
	ComponentLabel = "app.kubernetes.io/component"
	InstanceLabel  = "app.kubernetes.io/instance"
	PartOfLabel    = "app.kubernetes.io/part-of"
	ManagedByLabel = "app.kubernetes.io/managed-by"
	VersionLabel   = "app.kubernetes.io/version"
)

// CephPoolLabel, on the workload of a pool in a Ceph cluster and its pod, names the pool.
const CephPoolLabel = "holdfast.dev/ceph-pool"

// The values of NameLabel and PartOfLabel, and of ComponentLabel.
const (
	AppName             = "holdfast"
	ControllerComponent = "controller"
	NodeComponent       = "node"
	LoopSetsComponent   = "loop-sets"
	CephComponent       = "ceph"
)

// TopologyKey is the label of a Node, and the segment of a volume's topology, that names the node.
const TopologyKey = "topology.holdfast.dev/node"

// SharedVolumesKey is the label of a Node, and the segment of a volume's topology, that says whether shared volumes can
// be mounted there: "true" or "false". A class whose allowedTopologies require "true" restricts its pods to such nodes.
const SharedVolumesKey = "topology.holdfast.dev/nfs"

// RBDVolumesKey and CephFSVolumesKey are the labels of a Node, and the segments of a volume's topology, that say whether
// volumes of Ceph pools with that engine can be used there: "true" or "false". Each such volume requires "true".
const (
	RBDVolumesKey    = "topology.holdfast.dev/rbd"
	CephFSVolumesKey = "topology.holdfast.dev/cephfs"
)

// AgentFinalizer is on every Volume and Snapshot from its creation. The agent of the node removes it when nothing of
// the volume is left on disk.
const AgentFinalizer = "holdfast.dev/agent"

// AdoptedLabel, with the value "true", is on an object that an agent wrote for a volume or snapshot that it found on
// disk without one.
const AdoptedLabel = "holdfast.dev/adopted"

// AttachmentName is the name that Kubernetes gives the VolumeAttachment of a volume and a node.
func AttachmentName(volume, driver, node string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(volume+driver+node)))
}

// AttachedAnnotation, on a Volume that one node at a time may use, names the node that it is attached to.
const AttachedAnnotation = "holdfast.dev/attached-to"

// AttachedSinceAnnotation says when. No two attachments have the same.
const AttachedSinceAnnotation = "holdfast.dev/attached-since"

// The labels, in spec.labels of a Volume, that name the claim and PersistentVolume it was created for.
const (
	ClaimNameLabel        = "csi.storage.k8s.io/pvc/name"
	ClaimNamespaceLabel   = "csi.storage.k8s.io/pvc/namespace"
	PersistentVolumeLabel = "csi.storage.k8s.io/pv/name"
)

// CopyLabel, in spec.labels of a Volume, says that it exists for the copy of a source into another pool, and names the Volume
// that gets the content. Such a volume is not kept in the trash. The claims and pods of the copy have it as a label.
const CopyLabel = "holdfast.dev/copy-for"

// CopyUIDLabel, beside CopyLabel, is the UID of that Volume, which another of its name does not have.
const CopyUIDLabel = "holdfast.dev/copy-for-uid"

// ClaimOf is NAMESPACE/NAME of the claim that a volume was made for, empty if for none.
func ClaimOf(labels map[string]string) string {
	if labels[ClaimNameLabel] == "" {
		return ""
	}
	return labels[ClaimNamespaceLabel] + "/" + labels[ClaimNameLabel]
}

// The types of conditions.
const (
	// ReadyCondition: of a StorageCluster or NFSServer, all is as the spec says; of a StorageUpgrade or NodeJob, it has
	// succeeded; of a Volume or Snapshot, it can be used; of a StorageNode, its agent runs and a pool is usable.
	ReadyCondition = "Ready"
	// HealthyCondition: no errors are known of what is on disk. Its message says what is wrong and what to do.
	HealthyCondition = "Healthy"
	// PopulatedCondition: of a Volume with spec.populatedBy, a pod has copied and verified its content, and nothing of the copy
	// is left. Until then the volume is not Ready, and no PersistentVolume of a user refers to it.
	PopulatedCondition = "Populated"
	// SharedVolumesCondition: of a StorageNode, shared volumes can be mounted there. Its message says what is missing and
	// what to do.
	SharedVolumesCondition = "SharedVolumes"
	// RBDVolumesCondition and CephFSVolumesCondition: of the StorageNode of a node, the kernel has what volumes of Ceph
	// pools with that engine need. Each is absent where there are no such pools. Its message names the module that is
	// missing and what to do.
	RBDVolumesCondition    = "RBDVolumes"
	CephFSVolumesCondition = "CephFSVolumes"
	// FencedCondition: of the StorageNode of a node, the clients of its kernel are shut out of all Ceph clusters. It is
	// absent until the node was to be shut out for the first time.
	FencedCondition = "Fenced"
	// KeyRefusedCondition: of the StorageNode of a pool in a Ceph cluster, the key that the secret of the pool has cannot be
	// used, and the pool is served over a connection from before. It is absent until that was so for the first time.
	KeyRefusedCondition = "KeyRefused"
	// NodeUserRefusedCondition: of the StorageNode of a pool in a Ceph cluster, nodes cannot use its volumes: the key or the caps
	// of the user as whom they do are wrong. Its message says which. It is absent until that was so for the first time.
	NodeUserRefusedCondition = "NodeUserRefused"
	// AvailableCondition: of a StorageCluster, volumes can be made and used.
	AvailableCondition = "Available"
	// ProgressingCondition: of a StorageCluster, the running objects do not match the spec yet.
	ProgressingCondition = "Progressing"
	// DegradedCondition: of a StorageCluster, a node or a component does not work.
	DegradedCondition = "Degraded"
	// ReleaseIgnoredCondition: of a StorageCluster, a manifest was applied whose image spec.images.holdfast keeps from
	// running. It is absent otherwise.
	ReleaseIgnoredCondition = "ReleaseIgnored"
	// EphemeralNotAllowedCondition: of a StorageCluster, pods use inline ephemeral volumes that spec.csi.ephemeral does
	// not allow. It is absent otherwise.
	EphemeralNotAllowedCondition = "EphemeralNotAllowed"
	// PoolsFullCondition: of a StorageCluster, there are pools in which no further volume fits. It is absent otherwise.
	PoolsFullCondition = "PoolsFull"
	// ProtectedCondition: of a StorageCluster, the API server restricts the accounts of nodes and NFS servers to their
	// own objects, and refuses loop devices to other pods.
	ProtectedCondition = "Protected"
	// CompleteCondition: of a StorageUpgrade or NodeJob, it has succeeded; False of a Volume, it was found on a disk with a
	// part of its content only; True, the disk has all of it and the object says that a pod has still to bring it. Of other
	// Volumes it is absent.
	CompleteCondition = "Complete"
	// FailedCondition: of a StorageUpgrade or NodeJob, it has failed.
	FailedCondition = "Failed"
	// StalledCondition, in the word of kstatus: a StorageUpgrade or NodeJob has failed, or nothing goes on with one of the kinds
	// that users write before it is corrected.
	StalledCondition = "Stalled"
)

// ClientLabels are the labels by which Nodes say what the conditions of their StorageNodes say: which volumes that are
// elsewhere can be used there.
var ClientLabels = map[string]string{
	SharedVolumesCondition: SharedVolumesKey,
	RBDVolumesCondition:    RBDVolumesKey,
	CephFSVolumesCondition: CephFSVolumesKey,
}

// OperatorFinalizer is on objects whose deletion needs work by the operator: a StorageCluster, a StorageUpgrade.
const OperatorFinalizer = "holdfast.dev/operator"

// AllowHidingAnnotation, on a StorageCluster, names the pools, separated by commas, that may be changed although they
// hold volumes, which are then out of reach.
const AllowHidingAnnotation = "holdfast.dev/allow-hiding"

// PausedByAnnotation, on a StorageCluster with spec.paused, names the StorageUpgrade that set it and will end the pause.
const PausedByAnnotation = "holdfast.dev/paused-by"

// UpgradedAnnotation of a StorageCluster is the image that a StorageUpgrade wrote into its spec.
const UpgradedAnnotation = "holdfast.dev/upgraded-to"

// ManifestAnnotation of the controller's workload is the release whose manifest or chart was applied last.
const ManifestAnnotation = "holdfast.dev/manifest"

// ReplicasAnnotation, on a Deployment or StatefulSet that an upgrade has stopped, says how many replicas it had.
const ReplicasAnnotation = "holdfast.dev/replicas-before-upgrade"

// The reasons of events on a StorageNode.
const (
	ReasonRestored      = "Restored"      // a deleted volume was taken out of the trash
	ReasonRestoreFailed = "RestoreFailed" // spec.restore says why
)

// The reasons of conditions. A condition that is false because an operation failed has the ErrorCode as its reason.
const (
	ReasonReady            = "Ready"
	ReasonHealthy          = "Healthy"
	ReasonCreating         = "Creating"
	ReasonExpanding        = "Expanding"
	ReasonDeleting         = "Deleting"
	ReasonDamaged          = "Damaged"
	ReasonFileSystem       = "FileSystemErrors" // the kernel found errors in the file system of a volume, or of a pool
	ReasonDevice           = "DeviceErrors"     // the kernel logged I/O errors of the device of a volume
	ReasonNotGrown         = "NotGrown"         // the file system of a volume could not be grown to the volume's size
	ReasonPoolErrors       = "PoolErrors"       // the kernel found errors in the file system of the pool that a volume is in
	ReasonMissing          = "Missing"          // the volume was created, but the disk does not have it
	ReasonNodeDown         = "NodeDown"         // the agent has not renewed its Lease
	ReasonNodeGone         = "NodeGone"         // the Node object was deleted or has the out-of-service taint
	ReasonPoolFailing      = "PoolFailing"      // a pool is unmounted, read-only or failing
	ReasonNoPool           = "NoPool"
	ReasonNoDisk           = "NoDisk"           // a pool is new, and no disk of the node is free for it
	ReasonNotMounted       = "NotMounted"       // there is no pool where a known pool should be
	ReasonPoolMoved        = "PoolMoved"        // a known pool is on another node than its objects say
	ReasonWrongPool        = "WrongPool"        // another pool, or an older copy, is where a known pool should be
	ReasonUnreadable       = "Unreadable"       // a field of the object cannot be decoded
	ReasonForgotten        = "Forgotten"        // an object was deleted without a request to delete its data
	ReasonNoNFSClient      = "NoNFSClient"      // the kernel of a node has no client of NFS
	ReasonNoCephClient     = "NoCephClient"     // the kernel of a node lacks a client of Ceph
	ReasonKeyRefused       = "KeyRefused"       // the new key of a Ceph pool cannot be used
	ReasonKeyAccepted      = "KeyAccepted"      // the pool is served with the key that its secret has
	ReasonNodeUserRefused  = "NodeUserRefused"  // nodes cannot use the volumes of a Ceph pool with the key that they have
	ReasonNodeUserAccepted = "NodeUserAccepted" // they can
	ReasonForbidden        = "Forbidden"        // a process has no permission to use a feature of the node
)

// The reasons of the condition Fenced, and of the events about its changes.
const (
	ReasonFencing       = "Fencing"       // requested, and not yet confirmed by the Ceph clusters
	ReasonFenced        = "Fenced"        // no client of the node can write any more
	ReasonNotFenced     = "NotFenced"     // the node cannot be shut out, and the message says why
	ReasonTooManySilent = "TooManySilent" // so many nodes are silent that their silence says nothing about one
	ReasonReleasing     = "Releasing"     // the node is back and still has clients from before
	ReasonReleased      = "Released"      // the node is back and has no client from before any more
	ReasonWithdrawn     = "Withdrawn"     // the node came back before it was shut out
)

// The reasons of the condition Populated, and of Ready until it is True.
const (
	ReasonPopulated  = "Populated"  // the content was copied and verified
	ReasonPopulating = "Populating" // a pod copies the content, or waits to
	ReasonCopyFailed = "CopyFailed" // the content could not be copied, and the message says why
	ReasonPutBack    = "PutBack"    // of Complete: the object is older than the content, which is there
	ReasonIncomplete = "Incomplete" // of Ready and Complete: the Volume was deleted while its content was copied, and found again
)

// The reasons of events about a copy, on the Volume and its claim.
const (
	ReasonCopyStarted  = "CopyStarted"
	ReasonCopyProgress = "CopyProgress"
	ReasonCopyRetried  = "CopyRetried"
	ReasonCopyVerified = "CopyVerified"
)

// OwnFaults are the reasons why a volume or snapshot is not Healthy that lie in itself, and not in its pool.
var OwnFaults = []string{ReasonDamaged, ReasonDevice, ReasonFileSystem, ReasonNotGrown}
