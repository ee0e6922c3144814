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
	DeleteTrashed, DeletePartly, StageAttached, StageMounted, PublishBound, UnpublishDone, UnstageMount, UnstageDone,
}
