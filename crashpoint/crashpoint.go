// Package crashpoint names the steps between which a kill must be survived.
//
// Here costs nothing in an ordinary build. Built with the tag crashpoints, a process whose environment says
// HOLDFAST_CRASH_AT=<step> ends itself with SIGKILL when it gets there.
package crashpoint

// Step is a place where the process may die.
type Step string

// The steps, in the order in which an operation passes them.
const (
	BuildBegun     Step = "build-begun"     // the temporary entry and its metadata exist
	BuildFilled    Step = "build-filled"    // its content is complete, not yet synced
	BuildCommitted Step = "build-committed" // renamed to its final name, not yet answered
	GroupBuilt     Step = "group-built"     // all members renamed, the group's own record is not there
	CopyFrozen     Step = "copy-frozen"     // the sources are frozen, nothing is copied
	CopyDone       Step = "copy-done"       // copied, the sources are still frozen
	ExpandGrown    Step = "expand-grown"    // the content is grown, the metadata has the old size
	ExpandRecorded Step = "expand-recorded" // the new size is recorded, the caller has no answer
	DeleteTrashed  Step = "delete-trashed"  // renamed into the trash, not yet removed
	TrashTaken     Step = "trash-taken"     // out of the trash for good, nothing of it is removed
	DeletePartly   Step = "delete-partly"   // the content is gone or going, the metadata is there
	StageAttached  Step = "stage-attached"  // the device exists, nothing is mounted
	StageMounted   Step = "stage-mounted"   // mounted, the file system not yet grown
	PublishBound   Step = "publish-bound"   // bound to the target, the caller has no answer
	UnpublishDone  Step = "unpublish-done"  // the target is unmounted, the caller has no answer
	UnstageMount   Step = "unstage-mount"   // unmounted, the device is still there
	UnstageDone    Step = "unstage-done"    // the device is gone, the caller has no answer
)

// Steps lists them all, for tests that must miss none.
var Steps = []Step{
	BuildBegun, BuildFilled, BuildCommitted, GroupBuilt, CopyFrozen, CopyDone, ExpandGrown, ExpandRecorded,
	DeleteTrashed, TrashTaken, DeletePartly, StageAttached, StageMounted, PublishBound, UnpublishDone, UnstageMount, UnstageDone,
}

// The step in which a volume is restored from the trash.
const UndeleteRenamed Step = "undelete-renamed" // it has its place again, not yet synced; the caller has no answer

// The step in which another program copies a volume while no caller waits.
const CopyBegun Step = "copy-begun" // the copy is under way and recorded, the caller has no answer

// The steps in which a disk becomes the place of a pool.
const (
	DiskChosen    Step = "disk-chosen"    // recorded on the host, nothing is written to the disk
	DiskFormatted Step = "disk-formatted" // has its file system, was never mounted
	DiskMounted   Step = "disk-mounted"   // mounted, does not say yet whose it is
	DiskMarked    Step = "disk-marked"    // says whose it is, the record does not know
)

// DiskSteps lists them all, as Steps does those of operations on volumes.
var DiskSteps = []Step{DiskChosen, DiskFormatted, DiskMounted, DiskMarked}

// The steps in which a pool is begun and opened.
const (
	PoolBegun   Step = "pool-begun"   // has its identity and nothing else
	PoolCounted Step = "pool-counted" // the file with the next generation is there, under another name
)

// PoolSteps lists them all.
var PoolSteps = []Step{PoolBegun, PoolCounted}

// The steps in which a volume is exported, grown for its clients, and taken from them.
const (
	ExportRenewed   Step = "export-renewed"   // a copy is a file system of its own, and not mounted
	ExportMounted   Step = "export-mounted"   // mounted where it is exported, perhaps without an identity
	ExportCopied    Step = "export-copied"    // one of the two lists of exports has a change, the other not
	ExportRecorded  Step = "export-recorded"  // it has its identity, nothing is exported
	ExportPut       Step = "export-put"       // exported, the caller has no answer
	ExportGrown     Step = "export-grown"     // its file system is grown, the caller has no answer
	ExportRemoved   Step = "export-removed"   // exported no more, still mounted
	ExportUnmounted Step = "export-unmounted" // unmounted, its data is there
	ExportEmptied   Step = "export-emptied"   // its data is gone, its identity is still taken
	ExportRevived   Step = "export-revived"   // out of the trash, neither mounted nor known to clients
)

// ExportSteps lists them all.
var ExportSteps = []Step{
	ExportRenewed, ExportMounted, ExportCopied, ExportRecorded, ExportPut, ExportGrown, ExportRemoved, ExportUnmounted, ExportEmptied,
	ExportRevived,
}

// The steps in which an image in a Ceph cluster is made, copied, grown and removed.
const (
	ImagePromised Step = "image-promised" // its room is promised, the image is not there
	ImageSnapped  Step = "image-snapped"  // its source has a temporary snapshot, nothing is copied
	ImageCloned   Step = "image-cloned"   // it shares the content of its source, which still has the snapshot
	ImageFilled   Step = "image-filled"   // complete, but its metadata does not say so
	ImageReady    Step = "image-ready"    // its metadata says so, the ledger does not
	ImageGrown    Step = "image-grown"    // grown, the metadata has the old size
	ImageRecorded Step = "image-recorded" // the new size is recorded, the caller has no answer
	ImageTrashed  Step = "image-trashed"  // in the trash, the ledger has it under its name
	ImageGiven    Step = "image-given"    // out of the trash for good, nothing of it is removed
	ImageRemoved  Step = "image-removed"  // removed, its room is still promised
	ImageRevived  Step = "image-revived"  // has its name again, the ledger has it in the trash
	ImagesSnapped Step = "images-snapped" // all sources of a group have their snapshots, and are locked
	ImagesGrouped Step = "images-grouped" // all members are there, the record of the group is not
	GroupDropped  Step = "group-dropped"  // the record is gone, the members are there
)

// ImageSteps lists them all.
var ImageSteps = []Step{
	ImagePromised, ImageSnapped, ImageCloned, ImageFilled, ImageReady, ImageGrown, ImageRecorded, ImageTrashed, ImageGiven, ImageRemoved,
	ImageRevived, ImagesSnapped, ImagesGrouped, GroupDropped,
}
