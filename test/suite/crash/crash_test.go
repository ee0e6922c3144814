// Package crash kills the process at every named step of every operation and sees that the same call, made again
// after a restart, converges: data intact, nothing left behind.
package crash

import (
	"fmt"
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/crashpoint"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/standalone"
)

// operation is a call and the steps it passes.
type operation struct {
	name    string
	steps   []crashpoint.Step
	prepare func(*world)
	call    func(*world) error
	check   func(*world) // after the call has converged; it leaves nothing behind
}

const groupName = "g"

var build = []crashpoint.Step{crashpoint.BuildBegun, crashpoint.BuildFilled, crashpoint.BuildCommitted}

// using prepares a volume "a" that is in use and holds the payload "one".
func using(w *world) {
	w.must(w.create("a"), w.stage("a"), w.publish("a"))
	w.write("a", "one")
}

// done ends the use of "a" and removes it.
func done(w *world) {
	w.Helper()
	w.must(w.unpublish("a"), w.unstage("a"), w.delete("a"))
}

// stored prepares a volume "a" that holds the payload "one" and is not in use.
func stored(w *world) {
	w.must(w.create("a"))
	w.use("a", func() { w.write("a", "one") })
}

// copied checks a copy "b" of "a" and removes both.
func copied(w *world) {
	w.Helper()
	w.use("b", func() { w.holds("b", "one") })
	w.use("a", func() { w.holds("a", "one"); w.write("a", "two") })
	w.must(w.delete("a"), w.delete("b"))
}

var operations = []operation{{
	name: "create", steps: build,
	prepare: func(*world) {},
	call:    func(w *world) error { return w.create("a") },
	check: func(w *world) {
		w.use("a", func() { w.write("a", "one"); w.holds("a", "one") })
		w.must(w.delete("a"))
	},
}, {
	name: "snapshot", steps: append(build, crashpoint.CopyFrozen, crashpoint.CopyDone),
	prepare: stored,
	call:    func(w *world) error { return w.snapshot("s", "a") },
	check: func(w *world) {
		w.must(w.createFromSnapshot("b", "s"))
		copied(w)
		w.must(w.deleteSnapshot("s"))
	},
}, {
	name: "restore", steps: build,
	prepare: func(w *world) { stored(w); w.must(w.snapshot("s", "a")) },
	call:    func(w *world) error { return w.createFromSnapshot("b", "s") },
	check:   func(w *world) { copied(w); w.must(w.deleteSnapshot("s")) },
}, {
	name: "clone", steps: append(build, crashpoint.CopyFrozen, crashpoint.CopyDone),
	prepare: stored,
	call:    func(w *world) error { return w.clone("b", "a") },
	check:   copied,
}, {
	name: "group snapshot", steps: append(build, crashpoint.CopyFrozen, crashpoint.CopyDone, crashpoint.GroupBuilt),
	prepare: func(w *world) { stored(w); w.must(w.create("c")) },
	call:    func(w *world) error { _, err := w.group(groupName, "a", "c"); return err },
	check: func(w *world) {
		g, err := w.group(groupName, "a", "c")
		w.must(err)
		for _, s := range g.Snapshots {
			if s.SourceVolumeId == "a" {
				w.must(w.createFromSnapshot("b", s.SnapshotId))
			}
		}
		all, err := w.ListSnapshots(w.ctx(), &csi.ListSnapshotsRequest{})
		w.must(err)
		if len(all.Entries) != 2 {
			w.Errorf("%d snapshots exist, want the group's 2", len(all.Entries))
		}
		copied(w)
		w.must(w.deleteGroup(groupName), w.delete("c"))
	},
}, {
	name: "delete group", steps: []crashpoint.Step{crashpoint.DeleteTrashed},
	prepare: func(w *world) {
		stored(w)
		_, err := w.group(groupName, "a")
		w.must(err)
	},
	call:  func(w *world) error { return w.deleteGroup(groupName) },
	check: func(w *world) { w.must(w.delete("a")) },
}, {
	name: "expand", steps: []crashpoint.Step{crashpoint.ExpandGrown, crashpoint.ExpandRecorded},
	prepare: using,
	call:    func(w *world) error { return w.expand("a", 2*size) },
	check: func(w *world) {
		v, err := w.ControllerGetVolume(w.ctx(), &csi.ControllerGetVolumeRequest{VolumeId: "a"})
		w.must(err)
		h, err := w.ControllerGetVolumeHealth(w.ctx(), &csi.ControllerGetVolumeHealthRequest{VolumeId: "a"})
		w.must(err)
		if v.Volume.CapacityBytes != 2*size || len(h.VolumeHealth.HealthStatuses) > 0 {
			w.Errorf("the volume is %v, its health %v", v, h)
		}
		_, err = w.NodeExpandVolume(w.ctx(), &csi.NodeExpandVolumeRequest{VolumeId: "a", VolumePath: w.target("a"), StagingTargetPath: w.staging("a"), VolumeCapability: w.capability()})
		w.must(err)
		w.holds("a", "one")
		done(w)
	},
}, {
	name: "delete", steps: []crashpoint.Step{crashpoint.DeleteTrashed, crashpoint.TrashTaken, crashpoint.DeletePartly},
	prepare: stored,
	call:    func(w *world) error { return w.delete("a") },
	check:   func(*world) {},
}, {
	name: "delete snapshot", steps: []crashpoint.Step{crashpoint.DeleteTrashed, crashpoint.DeletePartly},
	prepare: func(w *world) { stored(w); w.must(w.snapshot("s", "a")) },
	call:    func(w *world) error { return w.deleteSnapshot("s") },
	check:   func(w *world) { w.must(w.delete("a")) },
}, {
	name: "stage", steps: []crashpoint.Step{crashpoint.StageAttached, crashpoint.StageMounted},
	prepare: stored,
	call:    func(w *world) error { return w.stage("a") },
	check:   func(w *world) { w.must(w.publish("a")); w.holds("a", "one"); done(w) },
}, {
	name: "publish", steps: []crashpoint.Step{crashpoint.PublishBound},
	prepare: func(w *world) { stored(w); w.must(w.stage("a")) },
	call:    func(w *world) error { return w.publish("a") },
	check:   func(w *world) { w.holds("a", "one"); done(w) },
}, {
	name: "unpublish", steps: []crashpoint.Step{crashpoint.UnpublishDone},
	prepare: using,
	call:    func(w *world) error { return w.unpublish("a") },
	check:   func(w *world) { w.must(w.publish("a")); w.holds("a", "one"); done(w) },
}, {
	name: "unstage", steps: []crashpoint.Step{crashpoint.UnstageMount, crashpoint.UnstageDone},
	prepare: func(w *world) { using(w); w.must(w.unpublish("a")) },
	call:    func(w *world) error { return w.unstage("a") },
	check:   func(w *world) { w.use("a", func() { w.holds("a", "one") }); w.must(w.delete("a")) },
}}

// inUse are the operations that hold the writes of a volume in use: a kill while they are held must not block them.
var inUse = []operation{{
	name: "snapshot in use", steps: []crashpoint.Step{crashpoint.CopyFrozen, crashpoint.CopyDone},
	prepare: using,
	call:    func(w *world) error { return w.snapshot("s", "a") },
	check: func(w *world) {
		w.write("a", "two")
		w.must(w.createFromSnapshot("b", "s"))
		w.use("b", func() { w.holds("b", "one") })
		w.must(w.delete("b"), w.deleteSnapshot("s"))
		done(w)
	},
}, {
	name: "clone in use", steps: []crashpoint.Step{crashpoint.CopyFrozen, crashpoint.CopyDone},
	prepare: using,
	call:    func(w *world) error { return w.clone("b", "a") },
	check: func(w *world) {
		w.write("a", "two")
		w.use("b", func() { w.holds("b", "one") })
		w.must(w.delete("b"))
		done(w)
	},
}}

func TestCrash_EveryStepIsCovered(t *testing.T) {
	covered := map[crashpoint.Step]bool{}
	for _, op := range slices.Concat(operations, inUse) {
		for _, s := range op.steps {
			covered[s] = true
		}
	}
	for _, s := range crashpoint.Steps {
		if !covered[s] {
			t.Errorf("no operation is killed at step %s", s)
		}
	}
}

func TestImageOnXFS_SurvivesAKillAtEveryStep(t *testing.T) {
	killAtEveryStep(t, hostfs.XFS, kind{engine: "image", fsType: "xfs"}, slices.Concat(operations, inUse))
}

func TestImageOnExt4_SurvivesAKillAtEveryStep(t *testing.T) {
	hostfs.Long(t)
	killAtEveryStep(t, hostfs.Ext4, kind{engine: "image", fsType: "ext4"}, slices.Concat(operations, inUse))
}

func TestBlockImageOnXFS_SurvivesAKillAtEveryStep(t *testing.T) {
	hostfs.Long(t)
	killAtEveryStep(t, hostfs.XFS, kind{engine: "image", block: true}, operations)
}

func TestDirectoryOnBtrfs_SurvivesAKillAtEveryStep(t *testing.T) {
	killAtEveryStep(t, hostfs.Btrfs, kind{engine: "directory"}, slices.Concat(operations, inUse))
}

func TestDirectoryOnXFS_SurvivesAKillAtEveryStep(t *testing.T) {
	killAtEveryStep(t, hostfs.XFSQuota, kind{engine: "directory"}, operations)
}

func TestDirectoryOnExt4_SurvivesAKillAtEveryStep(t *testing.T) {
	killAtEveryStep(t, hostfs.Ext4Quota, kind{engine: "directory"}, operations)
}

func killAtEveryStep(t *testing.T, fs hostfs.Kind, k kind, operations []operation) {
	pool := hostfs.New(t, fs, 8<<30)
	binary := crashing(t)
	for _, op := range operations {
		for _, step := range op.steps {
			if k.lacks(step) {
				continue
			}
			t.Run(fmt.Sprintf("%s killed at %s", op.name, step), func(t *testing.T) {
				if op.name == "expand" && k.fsType == "ext4" {
					requireOnlineExt4(t)
				}
				kill(newWorld(t, binary, pool, k), op, step)
			})
		}
	}
}

// requireOnlineExt4 skips where the kernel does not let this process grow a mounted ext4.
func requireOnlineExt4(t *testing.T) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	check.OK(t, unix.Capget(&header, &caps[0]))
	if caps[0].Effective&(1<<unix.CAP_SYS_RESOURCE) == 0 {
		hostfs.Skip(t, "ext4-growth", "this process lacks CAP_SYS_RESOURCE, without which the kernel grows no mounted ext4; the second kernel runs this case")
	}
}

// lacks says which steps a kind of volume does not have: a directory has no device, a block volume no mount.
func (k kind) lacks(step crashpoint.Step) bool {
	switch step {
	case crashpoint.StageAttached:
		return k.engine == "directory"
	case crashpoint.StageMounted:
		return k.block
	}
	return false
}

func kill(w *world, op operation, step crashpoint.Step) {
	op.prepare(w)
	w.must(w.Stop())
	w.start("HOLDFAST_CRASH_AT=" + string(step))
	if err := op.call(w); err == nil {
		w.Fatalf("%s was answered and never got to step %s", op.name, step)
	}
	if !w.Killed() {
		w.Fatalf("the process was not killed at %s: %s", step, w.Output())
	}
	w.disconnectAndStart()
	w.must(op.call(w))
	w.must(op.call(w)) // and once more: the answer may have been lost
	op.check(w)
	w.empty()
}

func (w *world) disconnectAndStart() {
	w.Helper()
	w.Kill() // already dead: closes the connection
	w.start()
}

func crashing(t *testing.T) string {
	t.Helper()
	return check.Got(standalone.CrashingBinary(t.Context(), t.TempDir()))(t)
}
