package v1beta1

// Phase is the state of a Volume or Snapshot, for people; programs read the conditions and the error.
// +kubebuilder:validation:Enum=Pending;Ready;Failed;Unreachable;Lost;Deleting
type Phase string

const (
	// PhasePending: the agent has not created it yet.
	PhasePending Phase = "Pending"
	// PhaseReady: it exists.
	PhaseReady Phase = "Ready"
	// PhaseFailed: the agent could not create it, and status.error says why; or it was found on the disk without all of its
	// content, as the condition Ready says.
	PhaseFailed Phase = "Failed"
	// PhaseUnreachable: its node or its pool is out of reach; it comes back with it.
	PhaseUnreachable Phase = "Unreachable"
	// PhaseLost: its pool is complete and does not have it.
	PhaseLost Phase = "Lost"
	// PhaseDeleting: the agent is removing it.
	PhaseDeleting Phase = "Deleting"
)

// Mode says how a volume is used. Empty leaves the choice to the pool.
// +kubebuilder:validation:Enum="";Filesystem;Block
type Mode string

const (
	ModeFilesystem Mode = "Filesystem"
	ModeBlock      Mode = "Block"
)

// FSType is a file system that a volume can be made with. Empty leaves the choice to the pool.
// +kubebuilder:validation:Enum="";ext4;xfs;btrfs
type FSType string

const (
	Ext4  FSType = "ext4"
	XFS   FSType = "xfs"
	Btrfs FSType = "btrfs"
)

// Provisioning says when a volume takes its space. Empty leaves the choice to the pool.
// +kubebuilder:validation:Enum="";Thin;Thick
type Provisioning string

const (
	Thin  Provisioning = "Thin"
	Thick Provisioning = "Thick"
)

// Engine is how a pool keeps its volumes. Empty means Image.
// +kubebuilder:validation:Enum="";Image;Directory;RBD;CephFS
type Engine string

const (
	EngineImage     Engine = "Image"
	EngineDirectory Engine = "Directory"
	EngineRBD       Engine = "RBD"    // an image in a Ceph cluster
	EngineCephFS    Engine = "CephFS" // a directory in a Ceph cluster
)

// Error is why the last operation failed.
type Error struct {
	// code says what kind of error it is.
	// +required
	Code ErrorCode `json:"code"`
	// message names the volume, the pool, the numbers and the remedy.
	// +required
	Message string `json:"message"`
}

// ErrorCode says why an agent refused.
// +kubebuilder:validation:Enum=NotFound;Exists;Invalid;OutOfRange;Exhausted;Busy;Precondition;Unavailable
type ErrorCode string

const (
	ErrorNotFound     ErrorCode = "NotFound"
	ErrorExists       ErrorCode = "Exists"
	ErrorInvalid      ErrorCode = "Invalid"
	ErrorOutOfRange   ErrorCode = "OutOfRange"
	ErrorExhausted    ErrorCode = "Exhausted"
	ErrorBusy         ErrorCode = "Busy"
	ErrorPrecondition ErrorCode = "Precondition"
	ErrorUnavailable  ErrorCode = "Unavailable"
)
