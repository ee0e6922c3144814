package sanity

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/nodeops/child"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// cost is what a call makes the kernel do, which no load of the machine changes.
type cost struct {
	children int // commands that are run
	guards   int // of them before a file system is frozen
	frozen   int // commands and processes that are started while it is
	syncs    int // of what is on disk, by Holdfast and its commands
	lookups  int // of files, and requests to devices
}

var (
	runs    = regexp.MustCompile(`^\d+ +execve\(`)
	syncing = regexp.MustCompile(`^\d+ +(fsync|fdatasync|syncfs|sync)\(`)
	starts  = regexp.MustCompile(`^\d+ +(execve|v?fork|clone3?)\(`)
	looking = regexp.MustCompile(`^\d+ +(openat|open|newfstatat|lstat|stat|statx|readlinkat|readlink|getdents64|ioctl)\(`)
)

// trace is the file with what the process calls.
type trace string

// traced records the system calls of the process and its children until the test ends.
func (w *world) traced() trace {
	w.Helper()
	path := filepath.Join(w.scratch, "trace")
	w.Cleanup(w.strace("-y", "-o", path))
	return trace(path)
}

// strace has strace follow the process and its children.
func (w *world) strace(args ...string) (end func()) {
	w.Helper()
	if _, err := exec.LookPath("strace"); err != nil {
		hostfs.Skip(w.T, "strace", "strace is missing, which counts system calls and makes them fail")
	}
	cmd := exec.Command("strace", append([]string{"-f", "-qq", "-p", fmt.Sprint(w.PID())}, args...)...)
	ended := check.Got(child.Start(cmd))(w.T)
	tasks := fmt.Sprintf("/proc/%d/task", w.PID())
	wait.Until(w.T, "all threads being traced", func() bool {
		threads, _ := filepath.Glob(tasks + "/*/status")
		for _, thread := range threads {
			if b, err := os.ReadFile(thread); err == nil && strings.Contains(string(b), "\nTracerPid:\t0\n") {
				return false
			}
		}
		return len(threads) > 0
	})
	return func() {
		_ = cmd.Process.Signal(unix.SIGINT) // the process goes on without it
		w.Log("strace:", <-ended)
	}
}

// of is what a call costs.
func (t trace) of(w *world, call func() error) (c cost) {
	w.Helper()
	before := len(check.Got(os.ReadFile(string(t)))(w.T))
	w.must(call())
	frozen := false
	for line := range strings.Lines(string(check.Got(os.ReadFile(string(t)))(w.T)[before:])) {
		switch {
		case strings.Contains(line, ", FIFREEZE"):
			frozen, c.guards = true, c.children
		case strings.Contains(line, ", FITHAW"):
			frozen = false
		case frozen && starts.MatchString(line) && !strings.Contains(line, "CLONE_THREAD"):
			c.frozen++
		}
		switch {
		case runs.MatchString(line):
			c.children++
		case syncing.MatchString(line) && !strings.Contains(line, "</memfd:"):
			c.syncs++
		case looking.MatchString(line):
			c.lookups++
		}
	}
	return c
}

// least are the costs of each call, without what the process looks at by itself every few seconds.
func (t trace) least(w *world, name string) map[string]cost {
	w.Helper()
	least := t.costs(w, name+"-0")
	for i := range 3 {
		for call, c := range t.costs(w, fmt.Sprint(name, "-", i+1)) {
			was := least[call]
			least[call] = cost{
				min(was.children, c.children), min(was.guards, c.guards), min(was.frozen, c.frozen), min(was.syncs, c.syncs), min(was.lookups, c.lookups),
			}
		}
	}
	return least
}

// costs are those of each call in the life of a volume.
func (t trace) costs(w *world, name string) map[string]cost {
	w.Helper()
	var id string
	costs := map[string]cost{}
	costs["create"] = t.of(w, func() error { id = w.create(name, nil).GetVolumeId(); return nil })
	extra := ""
	costs["create ext4"] = t.of(w, func() error {
		extra = w.create(name+"-ext4", func(q *csi.CreateVolumeRequest) { q.Parameters = nil }).GetVolumeId()
		return nil
	})
	w.remove(extra)
	w.stagingDir("staging-" + id)
	access := mount(multiWriter)
	costs["stage"] = t.of(w, func() error { return w.stage(id, access) })
	costs["publish"] = t.of(w, func() error { return w.publish(id, name, access, false) })
	var snapshot string
	costs["snapshot"] = t.of(w, func() error {
		made, err := w.CreateSnapshot(w.ctx(), &csi.CreateSnapshotRequest{Name: name, SourceVolumeId: id})
		snapshot = made.GetSnapshot().GetSnapshotId()
		return err
	})
	costs["clone"] = t.of(w, func() error {
		extra = w.create(name+"-clone", func(q *csi.CreateVolumeRequest) { q.VolumeContentSource = fromVolume(id) }).GetVolumeId()
		return nil
	})
	w.remove(extra)
	check.Got(w.DeleteSnapshot(w.ctx(), &csi.DeleteSnapshotRequest{SnapshotId: snapshot}))(w.T)
	costs["grow"] = t.of(w, func() error {
		if _, err := w.ControllerExpandVolume(w.ctx(), &csi.ControllerExpandVolumeRequest{VolumeId: id, CapacityRange: &csi.CapacityRange{RequiredBytes: gib}}); err != nil {
			return err
		}
		return w.expandOnNode(id, name)
	})
	costs["unpublish"] = t.of(w, func() error { return w.unpublish(id, name) })
	costs["unstage"] = t.of(w, func() error { return w.unstage(id) })
	costs["stage again"] = t.of(w, func() error { return w.stage(id, access) })
	w.must(w.unstage(id))
	costs["delete"] = t.of(w, func() error { w.remove(id); return nil })
	return costs
}

// spareLoops makes loop devices that are attached to nothing, as a machine has them that had many volumes once.
func (w *world) spareLoops(first, count int) {
	w.Helper()
	control := check.Got(os.OpenFile("/dev/loop-control", os.O_RDWR, 0))(w.T)
	remove := func() { // at once, since the kernel waits with each
		const atOnce = 100
		var removals sync.WaitGroup
		for part := range atOnce {
			removals.Go(func() {
				for n := part; n < count; n += atOnce {
					_ = unix.IoctlSetInt(int(control.Fd()), unix.LOOP_CTL_REMOVE, first+n)
				}
			})
		}
		removals.Wait()
	}
	remove() // those of a run that was killed
	w.Cleanup(func() {
		remove()
		control.Close()
	})
	check.Got(nodeops.AddLoops(first, count))(w.T)
}

// spareMounts makes mounts that have nothing to do with volumes.
func (w *world) spareMounts(count int) {
	w.Helper()
	all := w.stagingDir("others")
	w.must(unix.Mount(all, all, "", unix.MS_BIND, ""))
	w.Cleanup(func() { w.must(unix.Unmount(all, unix.MNT_DETACH)) }) // with those below
	for i := range count / 2 {
		dir := w.stagingDir(fmt.Sprint("others/", i))
		w.must(unix.Mount(dir, dir, "", unix.MS_BIND, ""))
		w.must(unix.Mount("none", dir, "tmpfs", 0, "size=4k"))
	}
}

func TestCost_OfACallIsTheSameWhateverElseTheMachineHas(t *testing.T) {
	hostfs.RequireRoot(t)
	const spare = 1700
	w := newWorld(t, imageOnXFS, ",overcommit=10") // so that no deleted volume is removed for another
	trace := w.traced()
	trace.costs(w, "first") // what is done once
	few := trace.least(w, "few")
	w.spareLoops(nodeops.FirstReservedLoop+8*256, spare) // behind those that NFS servers of a cluster may have
	w.spareMounts(1000)
	many := trace.least(w, "many")
	const foreign, most = 11, 6
	for range foreign / 2 {
		hostfs.New(t, hostfs.Ext4, 16*mib)
		hostfs.New(t, hostfs.XFS, 300*mib)
	}
	hostfs.New(t, hostfs.Btrfs, 128*mib)
	others := trace.least(w, "others")
	t.Logf("with few loop devices and mounts: %+v", few)
	t.Logf("with many: %+v", many)
	t.Logf("with other images that are mounted: %+v", others)
	for call, want := range few {
		if many[call].lookups > want.lookups && call != "create ext4" { // mke2fs looks at the source of each mount
			t.Errorf("%s looks at %d files, and at %d with %d loop devices and 1,000 mounts more", call, want.lookups, many[call].lookups, spare)
		}
	}
	for call, c := range many {
		if more := others[call].lookups - c.lookups; more > most*foreign {
			t.Errorf("%s looks at %d files more with %d images of others, want %d for each at most", call, more, foreign, most)
		}
	}
	const grows = 15 // to see that the file system needs not grow; a search for its mount takes 34
	if first, again := many["stage"].lookups, many["stage again"].lookups; again > first+grows {
		t.Errorf("stage looks at %d files, and at %d once the volume was expanded", first, again)
	}
	for call, want := range map[string]cost{
		"create": {children: 1, syncs: 6}, "create ext4": {children: 1, syncs: 4}, "snapshot": {children: 1, guards: 1, syncs: 5}, "clone": {children: 1, guards: 1, syncs: 5}, "stage": {}, "stage again": {}, "publish": {}, "grow": {syncs: 3}, "unpublish": {}, "unstage": {}, "delete": {syncs: 2},
	} {
		got := many[call]
		if got.children > want.children || got.syncs > want.syncs {
			t.Errorf("%s runs %d commands and syncs %d times, want %d and %d at most", call, got.children, got.syncs, want.children, want.syncs)
		}
		if got.guards != want.guards || got.frozen > 0 {
			t.Errorf("%s starts %d commands before it freezes a file system, want %d, and %d before it thaws it", call, got.guards, want.guards, got.frozen)
		}
	}
}
