// Package engine is the contract between a pool and the engines that fill its entries.
//
// A pool (package local) owns names, metadata, promises, trash and recovery; an engine makes, copies, grows and
// removes the content of one entry: a disk image, a directory. An engine keeps no list of its own.
package engine

import (
	"context"
	"os"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// Content is what an engine must remember of an entry. It lies in the entry's metadata.
type Content struct {
	Size         int64                `json:"size"`
	Mode         backend.Mode         `json:"mode"`
	FSType       string               `json:"fsType,omitempty"`
	Provisioning backend.Provisioning `json:"provisioning"`
	MkfsOptions  []string             `json:"mkfsOptions,omitempty"`
	Inodes       uint64               `json:"inodes,omitempty"`
	// InodesLeast is for a limit by size, of a directory whose spec says none: that many, or more if it is large. What an
	// earlier release made has neither, and no limit.
	InodesLeast uint64 `json:"inodesLeast,omitempty"`
	Project     uint32 `json:"project,omitempty"` // quota project id
	ReadOnly    bool   `json:"readOnly,omitempty"`
	FSSize      int64  `json:"fsSize,omitempty"` // what the file system in an image was made for
}

// Entry is one volume or snapshot on disk. The engine reads and writes inside Dir only.
type Entry struct {
	ID      backend.ID
	Dir     *os.Root
	Content *Content
	// Save writes Content beside the data at once, so that what it names can be undone after a crash.
	Save func() error
}

// Examiner is implemented by an Engine whose contents have file systems of their own.
type Examiner interface {
	// Examine says of those contents whose file systems are mounted on this host what is wrong with them, which is an empty
	// condition where they are well.
	Examine(ctx context.Context, contents map[backend.ID]*Content) map[backend.ID]backend.Condition
}

// Meter is implemented by an Engine whose contents are read and written through something that the kernel counts for.
type Meter interface {
	// Traffic is what was counted of those contents that are in use on this host.
	Traffic(contents map[backend.ID]*Content) map[backend.ID]nodeops.Traffic
}

// Engine fills the entries of one pool. Methods may run at the same time on different entries, never on one.
type Engine interface {
	// Plan checks a spec and completes it with the engine's defaults; the size is chosen by the pool afterwards,
	// at least smallest. source is nil for an empty volume.
	Plan(spec backend.VolumeSpec, source *Content) (c Content, smallest int64, err error)
	// Make fills a new entry with an empty volume.
	Make(ctx context.Context, e *Entry) error
	// Copy fills a new entry with the content of source, which is quiet. A read-only entry is a snapshot.
	Copy(ctx context.Context, e, source *Entry) error
	// Finish makes a filled entry durable and fit to be used beside the one it was copied from.
	Finish(ctx context.Context, e *Entry, copied bool) error
	// Quiet freezes an entry for a copy at one instant, until release is called; together means that other entries are
	// frozen at the same time, for one common instant. An error of release means that the freeze did not last and the copy
	// must be discarded.
	Quiet(ctx context.Context, e *Entry, together bool) (release func() error, err error)
	// Grow makes the content as large as Content.Size says, or leaves it as it was; repeated, it changes nothing.
	Grow(ctx context.Context, e *Entry) error
	// ReconcileSize finishes an interrupted growth: afterwards the content and Content.Size agree, and a user of the
	// larger size keeps it. It says whether Content changed.
	ReconcileSize(e *Entry) (changed bool, err error)
	// Remove frees the content and all that was reserved for it; repeated, or on a half made entry, it succeeds.
	Remove(ctx context.Context, e *Entry) error
	// InUse says by what an entry is used on this host, or "".
	InUse(e *Entry) (string, error)
	// Inspect measures the content and says what is wrong with it.
	Inspect(e *Entry) (used int64, condition backend.Condition)
	// Inodes counts the files that the content takes of the pool's file system; 0 where they are no scarce thing, or
	// cannot be counted.
	Inodes(e *Entry) int64
	// Unshared measures how much of the content no other entry has, and no less is free once it is removed. Where that
	// is unknown it is 0.
	Unshared(e *Entry) (int64, error)
	// Access says how a node uses the entry.
	Access(e *Entry) backend.Access
	// Recover puts right what a killed process left behind beneath the pool's directory, before anything else runs.
	Recover(ctx context.Context) error
	Close() error
}
