package sanity

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
)

// onDevice opens what is published at target.
func (w *world) onDevice(target string, flags int, do func(*os.File) error) error {
	w.Helper()
	f, err := os.OpenFile(w.path(target), flags, 0)
	if err != nil {
		return err
	}
	return errors.Join(do(f), f.Close())
}

func (w *world) writeDevice(target, content string) error {
	w.Helper()
	sector := make([]byte, 4096)
	copy(sector, content)
	return w.onDevice(target, os.O_RDWR, func(f *os.File) error {
		_, err := f.WriteAt(sector, 0)
		return errors.Join(err, f.Sync())
	})
}

func (w *world) readDevice(target string) string {
	w.Helper()
	sector := make([]byte, 4096)
	w.must(w.onDevice(target, os.O_RDONLY, func(f *os.File) error {
		_, err := f.ReadAt(sector, 0)
		return err
	}))
	return strings.TrimRight(string(sector), "\x00")
}

func (w *world) deviceSize(target string) (size int64) {
	w.Helper()
	w.must(w.onDevice(target, os.O_RDONLY, func(f *os.File) (err error) {
		size, err = f.Seek(0, 2)
		return err
	}))
	return size
}

func aBlockVolumeIsADeviceAtItsTarget(w *world) {
	id := w.createBlock("v").GetVolumeId()
	for range 2 {
		w.must(w.stage(id, block(multiWriter)))
	}
	for range 2 {
		w.must(w.publish(id, "target", block(multiWriter), false))
	}
	info, err := os.Stat(w.path("target"))
	if err != nil || info.Mode()&os.ModeDevice == 0 {
		w.Fatalf("the target is %v, %v", info, err)
	}
	if loops := w.loops(); len(loops) != 1 || w.mountedAt("target") != 1 {
		w.Errorf("attached to %v, %d mounts", loops, w.mountedAt("target"))
	}
	if size := w.deviceSize("target"); size != 512*mib {
		w.Errorf("the device has %d bytes", size)
	}
	w.must(w.writeDevice("target", "kept"))
	w.restart()
	w.must(w.stage(id, block(multiWriter)))
	w.must(w.publish(id, "target", block(multiWriter), false))
	w.release(id, "target")
	w.expectGone("target")
	if entries, err := os.ReadDir(w.path("staging-v")); err != nil || len(entries) > 0 {
		w.Errorf("left in staging: %v, %v", entries, err)
	}
	if loops := w.loops(); len(loops) > 0 {
		w.Errorf("still attached to %v", loops)
	}
	w.use(id, "target", block(multiWriter))
	if got := w.readDevice("target"); got != "kept" {
		w.Errorf("the device holds %q", got)
	}
	w.release(id, "target")
	w.remove(id)
	w.nothingLeft()
}

func aBlockVolumeHasWhatWasWrittenWithoutASync(w *world) {
	id := w.createBlock("v").GetVolumeId()
	w.use(id, "target", block(multiWriter))
	written := strings.Repeat("written", 1000)
	w.must(w.onDevice("target", os.O_RDWR, func(f *os.File) error {
		_, err := f.WriteAt([]byte(written), 0)
		return err
	}))
	w.release(id, "target")
	w.use(id, "target", block(multiWriter))
	w.must(w.onDevice("target", os.O_RDONLY, func(f *os.File) error {
		got := make([]byte, len(written))
		if _, err := f.ReadAt(got, 0); err != nil || string(got) != written {
			w.Errorf("it has %.20q (%v)", got, err)
		}
		return nil
	}))
	w.release(id, "target")
	w.remove(id)
	w.nothingLeft()
}

func aReadOnlyBlockTargetTakesNoWrites(w *world) {
	id := w.createBlock("v").GetVolumeId()
	w.use(id, "writer", block(multiWriter))
	w.must(w.writeDevice("writer", "first"))
	w.must(w.unpublish(id, "writer"))
	w.must(w.publish(id, "reader", block(multiWriter), true))
	if err := w.writeDevice("reader", "second"); err == nil {
		w.Error("a read-only target was written to")
	}
	if got := w.readDevice("reader"); got != "first" {
		w.Errorf("the device holds %q", got)
	}
	w.expectError(w.publish(id, "reader", block(multiWriter), false), codes.AlreadyExists, "reader", "read-only")
	// A writer beside the reader can write, and when it goes the reader is alone again.
	w.must(w.publish(id, "writer", block(multiWriter), false))
	w.must(w.writeDevice("writer", "third"))
	w.must(w.unpublish(id, "writer"))
	if err := w.writeDevice("reader", "fourth"); err == nil {
		w.Error("a read-only target was written to")
	}
	w.release(id, "reader")
	w.must(w.stage(id, block(readerOnly)))
	w.must(w.publish(id, "reader", block(readerOnly), false))
	if err := w.writeDevice("reader", "fifth"); err == nil {
		w.Error("a volume for readers only was written to")
	}
	w.release(id, "reader")
	w.remove(id)
	w.nothingLeft()
}

func aBlockVolumeLeavesTheNodeInWhateverOrder(w *world) {
	id := w.createBlock("v").GetVolumeId()
	w.use(id, "target", block(multiWriter))
	w.must(w.writeDevice("target", "kept"))
	w.must(w.unstage(id))
	if got := w.readDevice("target"); got != "kept" {
		w.Errorf("after unstage the published device holds %q", got)
	}
	w.must(w.unpublish(id, "target"))
	if loops := w.loops(); len(loops) > 0 {
		w.Errorf("still attached to %v", loops)
	}
	w.must(w.unstage(id))
	w.remove(id)
	w.nothingLeft()
}

func aBlockVolumeThatIsGoneLeavesNoDevice(w *world) {
	id := w.createBlock("v").GetVolumeId()
	w.use(id, "target", block(multiWriter))
	w.must(os.RemoveAll(w.pool + "/volumes/v"))
	w.restart()
	w.release(id, "target")
	w.expectGone("target")
	w.remove(id)
	w.nothingLeft()
}

func aBlockVolumeGrowsWhileItIsUsed(w *world) {
	id := w.createBlock("v").GetVolumeId()
	w.use(id, "target", block(multiWriter))
	_, err := w.ControllerExpandVolume(w.ctx(), &csi.ControllerExpandVolumeRequest{VolumeId: id, CapacityRange: &csi.CapacityRange{RequiredBytes: gib}})
	w.must(err)
	for range 2 {
		resp, err := w.NodeExpandVolume(w.ctx(), &csi.NodeExpandVolumeRequest{VolumeId: id, VolumePath: w.path("target"), VolumeCapability: block(multiWriter)})
		if err != nil || resp.GetCapacityBytes() != gib {
			w.Fatalf("got %v, %v", resp, err)
		}
	}
	if size := w.deviceSize("target"); size != gib {
		w.Errorf("the device has %d bytes", size)
	}
	stats, err := w.NodeGetVolumeStats(w.ctx(), &csi.NodeGetVolumeStatsRequest{VolumeId: id, VolumePath: w.path("target")})
	if err != nil || len(stats.GetUsage()) != 1 || stats.GetUsage()[0].GetTotal() != gib {
		w.Errorf("stats are %v, %v", stats, err)
	}
	w.release(id, "target")
	w.remove(id)
	w.nothingLeft()
}

func aBlockTargetThatCannotBeIsRefusedAndLeftAlone(w *world) {
	id := w.createBlock("v").GetVolumeId()
	w.must(w.stage(id, block(multiWriter)))
	w.must(os.WriteFile(w.path("file"), []byte("precious"), 0o600))
	w.stagingDir("dir")
	w.must(os.Symlink(w.path("file"), w.path("link")))
	for _, target := range []string{"file", "dir", "link"} {
		w.expectError(w.publish(id, target, block(multiWriter), false), codes.FailedPrecondition, target)
	}
	w.expectError(w.publish(id, "target", mount(multiWriter), false), codes.FailedPrecondition, "Block")
	if b, _ := os.ReadFile(w.path("file")); !bytes.Equal(b, []byte("precious")) {
		w.Errorf("the file now holds %q", b)
	}
	var st unix.Stat_t
	if err := unix.Lstat(w.path("dir"), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		w.Errorf("the directory: %v", err)
	}
	w.release(id)
	w.remove(id)
	w.nothingLeft()
}

// The device of a file system becomes free when it is unmounted, and may be the other volume's before the call has ended.
func aBlockVolumeKeepsItsDeviceBesideOnesThatGo(w *world) {
	const beside = 4
	var others, volumes []string
	for i := range beside {
		others = append(others, w.create(fmt.Sprint("other-", i), nil).GetVolumeId())
		volumes = append(volumes, w.createBlock(fmt.Sprint("v-", i)).GetVolumeId())
	}
	for range 10 {
		var all sync.WaitGroup
		for i, other := range others {
			w.must(w.stage(other, mount(multiWriter)))
			all.Go(func() {
				if err := w.unstage(other); err != nil {
					w.Error(err)
				}
			})
			all.Go(func() {
				if err := w.stage(volumes[i], block(multiWriter)); err != nil {
					w.Error(err)
				}
			})
		}
		all.Wait()
		for _, id := range volumes {
			w.must(w.publish(id, "target", block(multiWriter), false))
			w.must(w.writeDevice("target", id))
			if got := w.readDevice("target"); got != id {
				w.Fatalf("the device of %s holds %q", id, got)
			}
			w.release(id, "target")
		}
	}
	for _, id := range slices.Concat(others, volumes) {
		w.remove(id)
	}
	w.nothingLeft()
}
