// Package engine is the contract between a pool and its engine.
//
// A pool (package local) owns names, metadata, promised sizes, trash and recovery. An engine creates, copies, grows and
// removes the content of one entry: a disk image, a directory. It keeps no list of entries.
package engine

import (
	"context"
	"os"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// Content is what an engine must remember of an entry. It is stored in the entry's metadata.
type Content struct {
	Size         int64                `json:"size"`
	Mode         backend.Mode         `json:"mode"`
	FSType       string               `json:"fsType,omitempty"`
	Provisioning backend.Provisioning `json:"provisioning"`
	MkfsOptions  []string             `json:"mkfsOptions,omitempty"`
	Inodes       uint64               `json:"inodes,omitempty"`
	// InodesLeast is the limit of files of a directory whose spec sets none: that many, or more for a large directory.
	// Directories of earlier releases have neither, and no limit.
	InodesLeast uint64 `json:"inodesLeast,omitempty"`
	Project     uint32 `json:"project,omitempty"` // quota project id
	ReadOnly    bool   `json:"readOnly,omitempty"`
	FSSize      int64  `json:"fsSize,omitempty"` // size with which the file system in an image was made
}

// Entry is one volume or snapshot on disk. The engine accesses only what is in Dir.
type Entry struct {
	ID      backend.ID
	Dir     *os.Root
	Content *Content
	// Save writes Content to disk at once, so that what it refers to can be cleaned up after a crash.
	Save func() error
}

// Examiner is implemented by an Engine whose entries have file systems of their own.
type Examiner interface {
	// Examine returns the health of those contents whose file systems are mounted on this host. The condition of a healthy
	// one is empty.
	Examine(ctx context.Context, contents map[backend.ID]*Content) map[backend.ID]backend.Condition
}

// Trimmer is implemented by an Engine whose thin entries keep the space of files that were deleted in them.
type Trimmer interface {
	// Trim gives back that of the next of the contents in use after one, by ID, and returns which, and how many there are.
	Trim(ctx context.Context, contents map[backend.ID]*Content, after backend.ID) (next backend.ID, of int, err error)
}

// Meter is implemented by an Engine whose entries are accessed through devices for which the kernel counts I/O.
type Meter interface {
	// Traffic returns the I/O counters of those contents that are in use on this host.
	Traffic(contents map[backend.ID]*Content) map[backend.ID]nodeops.Traffic
}

// Engine manages the content of the entries of one pool. Methods may run concurrently on different entries, but never
// on the same.
type Engine interface {
	// FileSystem returns the type of the pool's file system, and what a copy in it takes.
	FileSystem() (string, backend.SnapshotCost)
	// Plan validates a spec and applies the engine's defaults. The pool then chooses the size, at least smallest. source
	// is nil for an empty volume.
	Plan(spec backend.VolumeSpec, source *Content) (c Content, smallest int64, err error)
	// Make creates the content of an empty volume in a new entry.
	Make(ctx context.Context, e *Entry) error
	// Copy creates the content of a new entry from source, which is quiesced. A read-only entry is a snapshot.
	Copy(ctx context.Context, e, source *Entry) error
	// Finish makes a new entry usable beside the one from which it was copied, and its directories durable. Files of the entry
	// itself are synced with its metadata.
	Finish(ctx context.Context, e *Entry, copied bool) error
	// Frozen runs do, which copies, while an entry is frozen, so that it is copied at one instant, and ends its context when that
	// takes too long. group names all that are frozen together, for a common instant; it is empty for one alone. After an error the
	// copy must be discarded, since the freeze may not have lasted.
	Frozen(ctx context.Context, e *Entry, group string, do func(context.Context) error) error
	// Grow grows the content to Content.Size, or leaves it unchanged if it fails. It is idempotent.
	Grow(ctx context.Context, e *Entry) error
	// ReconcileSize completes an interrupted Grow, so that the content and Content.Size agree. If a user already has the
	// larger size, that is kept. It returns whether Content changed.
	ReconcileSize(e *Entry) (changed bool, err error)
	// Remove frees the content and all that was reserved for it. It is idempotent and also works on an incomplete entry.
	Remove(ctx context.Context, e *Entry) error
	// InUse returns what uses an entry on this host, or "".
	InUse(e *Entry) (string, error)
	// Inspect returns the space that the content uses, and its health.
	Inspect(e *Entry) (used int64, condition backend.Condition)
	// Inodes returns the number of files of the pool's file system that the content uses; 0 if the file system does not
	// limit them or they cannot be counted.
	Inodes(e *Entry) int64
	// Unshared returns how many bytes of the content no other entry shares: at least that many are freed by its removal. 0
	// if unknown.
	Unshared(e *Entry) (int64, error)
	// Access returns how a node accesses the entry.
	Access(e *Entry) backend.Access
	// Recover cleans up what a killed process left in the pool's directory. It is called before any other method.
	Recover(ctx context.Context) error
	Close() error
}
