package sanity

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/standalone"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

// binary is the program under test, one for all tests.
var binary string

// world is a pool on a real file system, the process that serves it, and a place for its volumes.
type world struct {
	*testing.T
	*standalone.Process
	setting

	pool    string
	scratch string
	options standalone.Options
}

// newWorld makes a pool of 20 GiB; more adds to the value of --pool.
func newWorld(t *testing.T, s setting, more string, args ...string) *world {
	t.Helper()
	pool := hostfs.New(t, s.kind, 20*gib)
	scratch := check.Got(os.MkdirTemp("", "holdfast-sanity-"))(t)
	w := &world{T: t, setting: s, pool: pool, scratch: scratch, options: standalone.Options{
		Binary: binary, Socket: filepath.Join(scratch, "csi.sock"), Args: append([]string{"--ephemeral-pools=fast", "--ephemeral-max-size=1Ti"}, args...),
		Pools: []string{fmt.Sprintf("name=fast,engine=%s,path=%s%s", s.engine, pool, more)},
		Env:   []string{"GOGC=off"}, // a file that is never closed shows, and is not tidied up by chance
	}}
	t.Cleanup(func() {
		w.takeDown()
		os.RemoveAll(scratch)
	})
	w.start()
	return w
}

func (w *world) start() {
	w.Helper()
	p, err := standalone.Start(context.Background(), w.options)
	if err != nil {
		w.Fatal(err)
	}
	w.Process = p
}

// restart kills the process and starts another.
func (w *world) restart() {
	w.Helper()
	w.Kill()
	w.start()
}

// takeDown ends the process and whatever a failed test left.
func (w *world) takeDown() {
	if w.Process != nil { // nil where it has never started
		if err := w.Stop(); err != nil {
			w.Errorf("the process ended with: %v", err)
		}
		if w.Failed() {
			w.Log(w.Output())
		}
	}
	ctx := context.Background()
	for _, target := range w.mounts() {
		if !w.Failed() {
			w.Errorf("left mounted: %s", target)
		}
		if err := nodeops.Unmount(ctx, target); err != nil {
			w.Error(err)
		}
	}
	left := w.loops()
	if len(left) > 0 && !w.Failed() {
		w.Errorf("left attached: %v", left)
	}
	hostfs.DetachAll(w.T, left)
}

// mounts lists what is mounted in the scratch directory, the last first.
func (w *world) mounts() (targets []string) {
	w.Helper()
	all, err := nodeops.Mounts()
	if err != nil {
		w.Fatal(err)
	}
	for _, m := range all {
		if strings.HasPrefix(m.Target, w.scratch+"/") {
			targets = append([]string{m.Target}, targets...)
		}
	}
	return targets
}

// loops lists the devices on files of the pool, deleted ones too.
func (w *world) loops() (devices []string) {
	w.Helper()
	all, err := filepath.Glob("/sys/block/loop*")
	if err != nil {
		w.Fatal(err)
	}
	for _, dir := range all {
		device := "/dev/" + filepath.Base(dir)
		if image, err := nodeops.BackingFile(device); err == nil && strings.HasPrefix(image, w.pool+"/") {
			devices = append(devices, device)
		}
	}
	return devices
}

// ctx is bounded, so that a test that hangs fails.
func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), standalone.Patience)
	w.Cleanup(cancel)
	return ctx
}

// openDevices lists the loop devices that the process has open.
func (w *world) openDevices() (devices []string) {
	w.Helper()
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", w.PID()))
	w.must(err)
	for _, fd := range fds {
		if file, err := os.Readlink(fd); err == nil && strings.HasPrefix(file, "/dev/loop") {
			devices = append(devices, file)
		}
	}
	return devices
}

// nothingLeft fails if a volume, a snapshot, a mount, a device or a byte of promise is left, but for what is in the trash:
// volumes that can be restored, and none of these is a pod's.
func (w *world) nothingLeft() {
	w.Helper()
	volumes, err := w.ListVolumes(w.ctx(), &csi.ListVolumesRequest{})
	if err != nil || len(volumes.GetEntries()) > 0 {
		w.Errorf("volumes left: %v, %v", volumes.GetEntries(), err)
	}
	snapshots, err := w.ListSnapshots(w.ctx(), &csi.ListSnapshotsRequest{})
	if err != nil || len(snapshots.GetEntries()) > 0 {
		w.Errorf("snapshots left: %v, %v", snapshots.GetEntries(), err)
	}
	if left := append(w.mounts(), w.loops()...); len(left) > 0 {
		w.Errorf("left behind: %v", left)
	}
	if open := w.openDevices(); len(open) > 0 {
		w.Errorf("the process keeps open %v", open)
	}
	for _, dir := range []string{"volumes", "snapshots", ".trash", ".tmp"} {
		entries, err := os.ReadDir(filepath.Join(w.pool, dir))
		entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool {
			return dir == ".trash" && strings.HasPrefix(e.Name(), "volumes.") && !strings.HasPrefix(e.Name(), "volumes.csi-")
		})
		if err != nil && !os.IsNotExist(err) || len(entries) > 0 {
			w.Errorf("left in %s: %v, %v", dir, entries, err)
		}
	}
}
