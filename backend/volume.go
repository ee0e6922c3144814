package backend

import (
	"fmt"
	"math"
	"time"
)

// Mode is how a volume is presented: as a file system or a block device.
type Mode string

const (
	Filesystem Mode = "Filesystem"
	Block      Mode = "Block"
)

// Provisioning is when a volume allocates its space.
type Provisioning string

const (
	Thin  Provisioning = "thin"
	Thick Provisioning = "thick"
)

// Size is a requested size: at least Required bytes, at most Limit. Zero means unspecified.
type Size struct {
	Required int64
	Limit    int64
}

// DefaultSize is the size of a volume whose request specifies none.
const DefaultSize = 1 << 30

// Choose returns the smallest multiple of unit that meets the request and is at least smallest.
func (s Size) Choose(smallest, unit int64) (int64, error) {
	if s.Required < 0 || s.Limit < 0 {
		return 0, fmt.Errorf("%w size: required %d, limit %d: neither may be negative", ErrInvalid, s.Required, s.Limit)
	}
	if s.Limit > 0 && s.Required > s.Limit {
		return 0, fmt.Errorf("%w size: required %d is above the limit %d", ErrInvalid, s.Required, s.Limit)
	}
	want := s.Required
	if want == 0 {
		want = DefaultSize
		if s.Limit > 0 && s.Limit < want {
			want = s.Limit / unit * unit
		}
	}
	want = max(want, smallest)
	if want > math.MaxInt64-unit {
		return 0, fmt.Errorf("%w: %d bytes cannot be rounded up to a multiple of %d", ErrOutOfRange, want, unit)
	}
	want = (want + unit - 1) / unit * unit
	if s.Limit > 0 && want > s.Limit {
		return 0, fmt.Errorf("%w: the smallest size that fits is %s, above the limit of %s", ErrOutOfRange, Readable(want), Readable(s.Limit))
	}
	return want, nil
}

// VolumeSpec specifies a volume. The zero value of a field selects the default of the pool.
type VolumeSpec struct {
	Name         string // as requested; the ID is derived from it
	Pool         string
	Size         Size
	Mode         Mode
	FSType       string // ext4, xfs or btrfs; for engines that make a file system
	Provisioning Provisioning
	MkfsOptions  []string
	Inodes       uint64            // maximum number of files
	Labels       map[string]string // by which volumes are found later: claim, namespace, volume name

	// Nodes are the nodes on which the volume may be created; none means any. An existing volume satisfies the spec on any
	// node. A backend of one node ignores it.
	Nodes      []string
	NodesYield bool       // a source on the disk of another node is stronger
	OnNodeLoss OnNodeLoss // a backend of one node only stores it

	// Shared requests a volume that many nodes use at once. It must be false for a backend that is not a Sharer.
	Shared bool
	Server string // NAMESPACE/NAME of the NFS server for a shared volume; empty selects one

	// Ephemeral: the volume is not kept in the trash after its deletion.
	Ephemeral bool
	// Incomplete: another brings the content. A backend that is a Completer records it until Complete; others refuse it with
	// ErrInvalid.
	Incomplete bool
}

// LacksContent returns the error of an operation that would take a part of a volume's content for the whole.
func LacksContent(id ID) error {
	return fmt.Errorf("%w: volume %s does not have all of its content yet, so nothing is made of it", ErrPrecondition, id)
}

// OnNodeLoss is what happens to a volume whose node does not come back. Empty means Retain.
type OnNodeLoss string

const (
	// RetainOnNodeLoss keeps the volume object, so that a node that returns has the volume again.
	RetainOnNodeLoss OnNodeLoss = "Retain"
	// DeleteOnNodeLoss gives the volume up.
	DeleteOnNodeLoss OnNodeLoss = "Delete"
)

// SourceKind is the kind of object from which a volume was created.
type SourceKind string

const (
	SourceVolume   SourceKind = "volume"
	SourceSnapshot SourceKind = "snapshot"
)

// Reach says which hosts can use a volume.
type Reach int

const (
	ItsHost   Reach = iota // the one that has it
	OneHost                // any, but one at a time
	ManyHosts              // any, many at once
)

// Source is the origin of a volume's initial content.
type Source struct {
	Kind SourceKind `json:"kind"`
	ID   ID         `json:"id"`
}

// Volume is an existing volume.
type Volume struct {
	ID           ID
	Name         string
	Node         string // empty for a backend of one host
	Reach        Reach
	Pool         string
	PoolID       string // empty if pools have no IDs
	Size         int64
	Mode         Mode
	FSType       string
	FSSize       int64 // size of the file system in an image; below Size if it has yet to grow
	Provisioning Provisioning
	MkfsOptions  []string
	Inodes       uint64
	Labels       map[string]string
	Shared       bool   // used by many nodes at once, through an NFS server
	Server       string // NAMESPACE/NAME of that NFS server
	OnNodeLoss   OnNodeLoss
	Source       *Source
	Incomplete   bool   // another has not brought all of its content
	AttachedTo   string // the node that one node at a time may use it on, where that is recorded
	Detached     bool   // it is attached to no node
	Created      time.Time
	Used         int64 // bytes allocated in the pool
	Access       Access
	Condition    Condition
}

// Condition is the health of a volume. Message says what is wrong and what to do.
type Condition struct {
	Abnormal bool
	Reason   HealthReason // if abnormal
	Message  string
}

// Abnormal returns the condition of a damaged volume.
func Abnormal(format string, args ...any) Condition {
	return Condition{Abnormal: true, Message: fmt.Sprintf(format, args...)}
}

// HealthReason is what is wrong with a volume, as a condition reason.
type HealthReason string

const (
	// Damaged: the data on disk is not as its metadata says.
	Damaged HealthReason = ""
	// FileSystemErrors: the kernel has reported errors of the volume's file system.
	FileSystemErrors HealthReason = "FileSystemErrors"
	// DeviceErrors: the kernel has reported I/O errors of the volume's device.
	DeviceErrors HealthReason = "DeviceErrors"
	// NotGrown: the volume's file system could not be grown to the size of the volume.
	NotGrown HealthReason = "NotGrown"
	// PoolErrors: the kernel has reported errors of the file system of the volume's pool.
	PoolErrors HealthReason = "PoolErrors"
)

// SnapshotCost is what a snapshot or a clone of a volume takes.
type SnapshotCost string

const (
	// SharesBlocks: milliseconds and no space, until the volume is written to.
	SharesBlocks SnapshotCost = "Shared"
	// CopiesAll: time and space for all that the volume has.
	CopiesAll SnapshotCost = "Full"
)

// Capacity is the space of one pool, in bytes.
type Capacity struct {
	Total     int64 // of the file system
	Promised  int64 // to volumes, snapshots and trash
	Used      int64 // of the file system, by all files in it
	Available int64 // what can still be promised
	Smallest  int64 // minimum size of a volume
	Largest   int64 // maximum size of a volume

	FileSystem   string       // type of the pool's file system; empty where it has none of its own
	SnapshotCost SnapshotCost // empty for a sum of several pools

	Condition Condition // of the pool's file system, which still works

	Identity PoolIdentity // empty if the pool has none, or for a sum of several pools
}
