package v1

// Phase is where a Volume or Snapshot stands, for people; programs read the conditions and the error.
// +kubebuilder:validation:Enum=Pending;Ready;Failed;Unreachable;Lost;Deleting
type Phase string

const (
	// PhasePending: the agent has yet to make it.
	PhasePending Phase = "Pending"
	// PhaseReady: it exists.
	PhaseReady Phase = "Ready"
	// PhaseFailed: the agent could not make it, and status.error says why.
	PhaseFailed Phase = "Failed"
	// PhaseUnreachable: its node or its pool is out of reach; it comes back with it.
	PhaseUnreachable Phase = "Unreachable"
	// PhaseLost: its own pool is there and whole, and does not have it.
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
// +kubebuilder:validation:Enum="";thin;thick
type Provisioning string

const (
	Thin  Provisioning = "thin"
	Thick Provisioning = "thick"
)

// Error is how the last operation ended, if badly.
type Error struct {
	Code ErrorCode `json:"code"`
	// Message names the volume, the pool, the numbers and what the reader can do.
	Message string `json:"message"`
}

// ErrorCode says in what way an agent refused.
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
