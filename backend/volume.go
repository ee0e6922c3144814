package backend

import (
	"fmt"
	"math"
	"time"
)

// Mode says how a volume is used.
type Mode string

const (
	Filesystem Mode = "Filesystem"
	Block      Mode = "Block"
)

// Provisioning says when a volume takes its space.
type Provisioning string

const (
	Thin  Provisioning = "thin"
	Thick Provisioning = "thick"
)

// Size is a wish: at least Required bytes, at most Limit. Zero means no wish.
type Size struct {
	Required int64
	Limit    int64
}

// DefaultSize is what a request without any size gets.
const DefaultSize = 1 << 30

// Choose rounds the wish up to a multiple of unit that is at least smallest.
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
		return 0, fmt.Errorf("%w: the smallest size that fits is %d bytes, above the limit of %d", ErrOutOfRange, want, s.Limit)
	}
	return want, nil
}

// VolumeSpec is what a caller asks for. The zero value of a field leaves the choice to the pool.
type VolumeSpec struct {
	Name         string // as the caller chose it; the ID is derived from it
	Pool         string
	Size         Size
	Mode         Mode
	FSType       string // ext4, xfs or btrfs; Filesystem mode of engines that make one
	Provisioning Provisioning
	MkfsOptions  []string
	Inodes       uint64            // most files the volume may hold
	Labels       map[string]string // what the caller wants to find again: claim, namespace, volume name

	// Nodes are the hosts that may have the volume; none means any. It decides where a volume is made, and is no part
	// of what an existing one must satisfy. A backend of one host ignores it.
	Nodes      []string
	OnNodeLoss OnNodeLoss // a backend of one host only remembers it

	// Shared asks for a volume that many hosts use at once. Only a backend that is a Sharer makes those; another one
	// must not be asked.
	Shared bool
	Server string // NAMESPACE/NAME of the server that shall have a shared volume; empty leaves the choice

	// Ephemeral is a volume that cannot be needed after its deletion: it is not kept in the trash.
	Ephemeral bool
}

// OnNodeLoss says what becomes of a volume whose node is gone for good. Empty means Retain.
type OnNodeLoss string

const (
	// RetainOnNodeLoss keeps the volume on record, so that a node that returns takes it back.
	RetainOnNodeLoss OnNodeLoss = "Retain"
	// DeleteOnNodeLoss gives the volume up.
	DeleteOnNodeLoss OnNodeLoss = "Delete"
)

// SourceKind says what a volume was made from.
type SourceKind string

const (
	SourceVolume   SourceKind = "volume"
	SourceSnapshot SourceKind = "snapshot"
)

// Source is where a volume's first content came from.
type Source struct {
	Kind SourceKind `json:"kind"`
	ID   ID         `json:"id"`
}

// Volume is a volume that exists.
type Volume struct {
	ID           ID
	Name         string
	Node         string // the host that has it; empty when the backend is of one host
	Pool         string
	PoolID       string // of that pool; empty where pools have none
	Size         int64
	Mode         Mode
	FSType       string
	FSSize       int64 // what the file system in an image was made for; below Size it may have to be grown
	Provisioning Provisioning
	MkfsOptions  []string
	Inodes       uint64
	Labels       map[string]string
	Shared       bool   // used by many hosts at once, through a server
	Server       string // NAMESPACE/NAME of that server
	OnNodeLoss   OnNodeLoss
	Source       *Source
	Created      time.Time
	Used         int64 // bytes taken from the pool
	Access       Access
	Condition    Condition
}

// Condition is the health of a volume; Message says what is wrong and what to do.
type Condition struct {
	Abnormal bool
	Reason   HealthReason // of what is abnormal
	Message  string
}

// HealthReason says in a word what is wrong with a volume that can be used still, or could be.
type HealthReason string

const (
	// Damaged is what is on the disk: it is not what it should be.
	Damaged HealthReason = ""
	// FileSystemErrors: the kernel has met errors in the volume's file system.
	FileSystemErrors HealthReason = "FileSystemErrors"
	// DeviceErrors: the kernel has met I/O errors of the volume's device.
	DeviceErrors HealthReason = "DeviceErrors"
	// NotGrown: the volume's file system could not be grown to the size of the volume.
	NotGrown HealthReason = "NotGrown"
	// PoolErrors: the kernel has met errors in the file system of the volume's pool.
	PoolErrors HealthReason = "PoolErrors"
)

// Capacity is the room of one pool in bytes.
type Capacity struct {
	Total     int64 // of the file system
	Promised  int64 // to volumes, snapshots and trash
	Used      int64 // of the file system, by anyone
	Available int64 // what can still be promised
	Smallest  int64 // volume
	Largest   int64 // volume

	Condition Condition // of the pool's file system, which can be used still

	Identity PoolIdentity // of the pool; empty where it has none, or several are summed up
}
