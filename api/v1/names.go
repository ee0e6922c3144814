package v1

const (
	// DriverName is the CSI driver, and the provisioner of its classes.
	DriverName = "csi.holdfast.dev"
	// ProvisionerName is the provisioner of plain NFS volumes.
	ProvisionerName = "nfs.holdfast.dev"
	// DefaultNamespace is that of an installation.
	DefaultNamespace = "holdfast-system"
	// ControllerName is that of the workload, the account and the Lease of the controller, which writes under it.
	ControllerName = "holdfast-controller"
	// NodeName is that of the DaemonSet of node pods, and of the ConfigMap that they read.
	NodeName = "holdfast-node"
)

// The labels of what Holdfast makes, as Kubernetes recommends them.
const (
	NameLabel      = "app.kubernetes.io/name"
	ComponentLabel = "app.kubernetes.io/component"
	InstanceLabel  = "app.kubernetes.io/instance"
	PartOfLabel    = "app.kubernetes.io/part-of"
	ManagedByLabel = "app.kubernetes.io/managed-by"
	VersionLabel   = "app.kubernetes.io/version"
)

// The values of NameLabel and PartOfLabel, and of ComponentLabel.
const (
	AppName             = "holdfast"
	ControllerComponent = "controller"
	NodeComponent       = "node"
	LoopSetsComponent   = "loop-sets"
)

// TopologyKey is the label of a Node, and the segment of a volume's topology, that names the node.
const TopologyKey = "topology.holdfast.dev/node"

// SharedVolumesKey is the label of a Node, and the segment of a volume's topology, that says whether shared volumes can
// be mounted there: "true" or "false". A class whose allowedTopologies want "true" brings its pods to such nodes only.
const SharedVolumesKey = "topology.holdfast.dev/nfs"

// AgentFinalizer is on every Volume and Snapshot from its creation. The agent of the node removes it when nothing of
// the volume is left on disk.
const AgentFinalizer = "holdfast.dev/agent"

// AdoptedLabel, with the value "true", is on an object that an agent wrote for what it found on disk without one.
const AdoptedLabel = "holdfast.dev/adopted"

// The labels, in spec.labels of a Volume, by which whoever makes volumes for claims says what one is for.
const (
	ClaimNameLabel        = "csi.storage.k8s.io/pvc/name"
	ClaimNamespaceLabel   = "csi.storage.k8s.io/pvc/namespace"
	PersistentVolumeLabel = "csi.storage.k8s.io/pv/name"
)

// ClaimOf is NAMESPACE/NAME of the claim that a volume was made for, empty if for none.
func ClaimOf(labels map[string]string) string {
	if labels[ClaimNameLabel] == "" {
		return ""
	}
	return labels[ClaimNamespaceLabel] + "/" + labels[ClaimNameLabel]
}

// The types of conditions.
const (
	// ReadyCondition: of a Volume or Snapshot, it can be used; of a StorageNode, its agent runs and a pool is usable.
	ReadyCondition = "Ready"
	// HealthyCondition: what is on disk is as it should be. Its message says what is wrong and what to do.
	HealthyCondition = "Healthy"
	// SharedVolumesCondition: of a StorageNode, shared volumes can be mounted there. Its message says what is missing and
	// what to do.
	SharedVolumesCondition = "SharedVolumes"
	// AvailableCondition: of a StorageCluster, volumes can be made and used.
	AvailableCondition = "Available"
	// ProgressingCondition: of a StorageCluster, what runs is not yet what is asked for.
	ProgressingCondition = "Progressing"
	// DegradedCondition: of a StorageCluster, a node or a part does not work.
	DegradedCondition = "Degraded"
	// ReleaseIgnoredCondition: of a StorageCluster, a manifest was applied whose image spec.images.holdfast keeps from
	// running. It is left out otherwise.
	ReleaseIgnoredCondition = "ReleaseIgnored"
	// EphemeralNotAllowedCondition: of a StorageCluster, pods use inline ephemeral volumes that spec.csi.ephemeral does not
	// allow. It is left out otherwise.
	EphemeralNotAllowedCondition = "EphemeralNotAllowed"
	// ProtectedCondition: of a StorageCluster, the API server keeps the accounts of nodes and NFS servers to what is their
	// own, and loop devices from pods that are not to have them.
	ProtectedCondition = "Protected"
	// CompleteCondition: of a StorageUpgrade or NodeJob, it has ended well.
	CompleteCondition = "Complete"
	// FailedCondition: of a StorageUpgrade or NodeJob, it has ended badly.
	FailedCondition = "Failed"
)

// OperatorFinalizer is on objects whose deletion leaves something to put right: a StorageCluster, a StorageUpgrade.
const OperatorFinalizer = "holdfast.dev/operator"

// AllowHidingAnnotation, on a StorageCluster, names the pools, separated by commas, that may be changed although they hold
// volumes, which are out of reach then.
const AllowHidingAnnotation = "holdfast.dev/allow-hiding"

// PausedByAnnotation, on a StorageCluster with spec.pause, names the StorageUpgrade that set it and takes it back.
const PausedByAnnotation = "holdfast.dev/paused-by"

// ReplicasAnnotation, on a Deployment or StatefulSet that an upgrade has stopped, says how many replicas it had.
const ReplicasAnnotation = "holdfast.dev/replicas-before-upgrade"

// The reasons of events on a StorageNode.
const (
	ReasonRestored      = "Restored"      // a deleted volume was taken out of the trash
	ReasonRestoreFailed = "RestoreFailed" // spec.restore says why
)

// The reasons of conditions. A condition that is false because an operation failed has the ErrorCode as its reason.
const (
	ReasonReady       = "Ready"
	ReasonHealthy     = "Healthy"
	ReasonCreating    = "Creating"
	ReasonExpanding   = "Expanding"
	ReasonDeleting    = "Deleting"
	ReasonDamaged     = "Damaged"
	ReasonFileSystem  = "FileSystemErrors" // the kernel has met errors in the file system of a volume, or of a pool
	ReasonDevice      = "DeviceErrors"     // the kernel has met I/O errors of the device of a volume
	ReasonNotGrown    = "NotGrown"         // the file system of a volume could not be grown to the volume's size
	ReasonPoolErrors  = "PoolErrors"       // the kernel has met errors in the file system of the pool that a volume is in
	ReasonMissing     = "Missing"          // the object says it exists, the disk does not have it
	ReasonNodeDown    = "NodeDown"         // the agent has not been heard of
	ReasonNodeGone    = "NodeGone"         // the Node object was deleted or has the out-of-service taint
	ReasonPoolFailing = "PoolFailing"      // a pool is unmounted, read-only or failing
	ReasonNoPool      = "NoPool"
	ReasonNotMounted  = "NotMounted"  // where a known pool should be, there is none
	ReasonPoolMoved   = "PoolMoved"   // a known pool is on another node than its objects say
	ReasonWrongPool   = "WrongPool"   // where a known pool should be, there is another, or an older copy of it
	ReasonUnreadable  = "Unreadable"  // a field of the object cannot be decoded
	ReasonForgotten   = "Forgotten"   // an object was deleted without a request to delete its data
	ReasonNoNFSClient = "NoNFSClient" // the kernel of a node has no client of NFS
	ReasonForbidden   = "Forbidden"   // a process may not use what the node has
)

// OwnFaults are the reasons why a volume or snapshot is not Healthy that lie in itself, and not in where it is.
var OwnFaults = []string{ReasonDamaged, ReasonDevice, ReasonFileSystem, ReasonNotGrown}
