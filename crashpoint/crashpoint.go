// Package crashpoint names points between the steps of an operation at which tests kill the process.
//
// Here does nothing in a normal build. Built with the tag crashpoints, it sends SIGKILL to its own process if the
// environment has HOLDFAST_CRASH_AT=<step>.
package crashpoint

// Step is a point at which the process may be killed.
type Step string

// The steps of operations on volumes, in order.
const (
	BuildBegun     Step = "build-begun"     // the temporary entry and its metadata exist
	BuildFilled    Step = "build-filled"    // the content is complete and not synced
	BuildCommitted Step = "build-committed" // renamed to its final name, not reported to the caller
	GroupBuilt     Step = "group-built"     // all members are renamed, the record of the group does not exist
	CopyFrozen     Step = "copy-frozen"     // the sources are frozen, nothing is copied
	CopyDone       Step = "copy-done"       // the content is copied, the sources are still frozen
	ExpandGrown    Step = "expand-grown"    // the content is grown, the metadata has the old size
	ExpandRecorded Step = "expand-recorded" // the new size is recorded, not reported to the caller
	DeleteTrashed  Step = "delete-trashed"  // renamed into the trash, not removed
	TrashTaken     Step = "trash-taken"     // taken out of the trash to be removed, nothing is removed
	DeletePartly   Step = "delete-partly"   // the content is partly removed, the metadata exists
	StageAttached  Step = "stage-attached"  // the loop device is attached, nothing is mounted
	StageMounted   Step = "stage-mounted"   // mounted, the file system is not grown
	PublishBound   Step = "publish-bound"   // bind-mounted at the target, not reported to the caller
	UnpublishDone  Step = "unpublish-done"  // the target is unmounted, not reported to the caller
	UnstageMount   Step = "unstage-mount"   // unmounted, the loop device is still attached
	UnstageDone    Step = "unstage-done"    // the loop device is detached, not reported to the caller
)

// Steps lists all steps of operations on volumes, for tests that go through all of them.
var Steps = []Step{
	BuildBegun, BuildFilled, BuildCommitted, GroupBuilt, CopyFrozen, CopyDone, ExpandGrown, ExpandRecorded,
	DeleteTrashed, TrashTaken, DeletePartly, StageAttached, StageMounted, PublishBound, UnpublishDone, UnstageMount, UnstageDone,
}

// The step of the mapping of an image in a Ceph cluster.
const ImageMapped Step = "image-mapped" // the kernel has the image, its client is not recorded

// The step of a restore from the trash.
const UndeleteRenamed Step = "undelete-renamed" // renamed out of the trash, not synced, not reported to the caller

// The step at which another program copies a volume in the background.
const CopyBegun Step = "copy-begun" // the copy is running and recorded, not reported to the caller

// The steps of the preparation of a disk for a pool.
const (
	DiskChosen    Step = "disk-chosen"    // recorded on the host, nothing is written to the disk
	DiskFormatted Step = "disk-formatted" // the file system exists and was never mounted
	DiskMounted   Step = "disk-mounted"   // mounted, without the mark that names its pool
	DiskMarked    Step = "disk-marked"    // the mark is written, the record on the host does not say so
)

// DiskSteps lists all steps of the preparation of a disk.
var DiskSteps = []Step{DiskChosen, DiskFormatted, DiskMounted, DiskMarked}

// The steps of the creation and the opening of a pool.
const (
	PoolBegun   Step = "pool-begun"   // the pool has its identity and nothing else
	PoolCounted Step = "pool-counted" // the file with the next generation exists under its temporary name
)

// PoolSteps lists all steps of the creation and the opening of a pool.
var PoolSteps = []Step{PoolBegun, PoolCounted}

// The steps of the export of a volume, its growth and its removal.
const (
	ExportRenewed   Step = "export-renewed"   // the copy has its own file system UUID and is not mounted
	ExportMounted   Step = "export-mounted"   // mounted at its export path, perhaps without an export id
	ExportCopied    Step = "export-copied"    // one of the two copies of the ledger has the change
	ExportRecorded  Step = "export-recorded"  // the export id is recorded, nothing is exported
	ExportPut       Step = "export-put"       // exported, not reported to the caller
	ExportGrown     Step = "export-grown"     // the file system is grown, not reported to the caller
	ExportRemoved   Step = "export-removed"   // unexported, still mounted
	ExportUnmounted Step = "export-unmounted" // unmounted, the data exists
	ExportEmptied   Step = "export-emptied"   // the data is removed, the export id is still recorded
	ExportRevived   Step = "export-revived"   // restored from the trash, neither mounted nor exported
)

// ExportSteps lists all steps of the export of a volume.
var ExportSteps = []Step{
	ExportRenewed, ExportMounted, ExportCopied, ExportRecorded, ExportPut, ExportGrown, ExportRemoved, ExportUnmounted, ExportEmptied,
	ExportRevived,
}

// The steps of the creation, copy, growth and removal of an image in a Ceph cluster.
const (
	ImagePromised Step = "image-promised" // its size is counted in the ledger, the image does not exist
	ImageSnapped  Step = "image-snapped"  // the source has a temporary snapshot, nothing is copied
	ImageCloned   Step = "image-cloned"   // the clone shares the content of the source, which still has the snapshot
	ImageFilled   Step = "image-filled"   // the image is complete, its metadata does not say so
	ImageReady    Step = "image-ready"    // its metadata says so, the ledger does not
	ImageGrown    Step = "image-grown"    // grown, the metadata has the old size
	ImageRecorded Step = "image-recorded" // the new size is recorded, not reported to the caller
	ImageTrashed  Step = "image-trashed"  // in the trash, the ledger does not say so
	ImageGiven    Step = "image-given"    // taken out of the trash to be removed, nothing is removed
	ImageRemoved  Step = "image-removed"  // removed, its size is still counted in the ledger
	ImageRevived  Step = "image-revived"  // has its name again, the ledger still has it in the trash
)

// ImageSteps lists all steps of images in a Ceph cluster.
var ImageSteps = []Step{
	ImagePromised, ImageSnapped, ImageCloned, ImageFilled, ImageReady, ImageGrown, ImageRecorded, ImageTrashed, ImageGiven, ImageRemoved,
	ImageRevived,
}

// CephFSSteps lists all steps of volumes in a CephFS, which are named as those of other volumes.
var CephFSSteps = []Step{
	PoolBegun, BuildBegun, BuildFilled, BuildCommitted, CopyFrozen, CopyBegun, CopyDone, ExpandGrown, ExpandRecorded,
	DeleteTrashed, TrashTaken, DeletePartly, UndeleteRenamed,
}
