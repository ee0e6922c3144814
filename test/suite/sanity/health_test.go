package sanity

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

// meetErrors makes the kernel meet an error in the file system of a volume in use, by its type.
var meetErrors = map[string]func(w *world, id, target string){
	"ext4": func(w *world, _, target string) {
		m, err := nodeops.MountAt(w.path(target))
		w.must(err)
		hostfs.MeetError(w.T, nodeops.LoopUnder(m))
	},
	"xfs": func(w *world, _, target string) {
		w.command(nil, "xfs_io", "-x", "-c", "shutdown", w.path(target))
	},
	"btrfs": func(w *world, id, target string) {
		marker := bytes.Repeat([]byte("by a test "), 7000)
		w.write(target, "marked", string(marker))
		w.release(id, target)
		content, err := os.ReadFile(w.image(id))
		w.must(err)
		at := bytes.Index(content, marker[:4096])
		if at < 0 {
			w.Fatal("the file is not in the image as it was written")
		}
		f, err := os.OpenFile(w.image(id), os.O_WRONLY, 0)
		w.must(err)
		_, err = f.WriteAt([]byte("damage"), int64(at))
		w.must(err)
		w.must(f.Close())
		w.use(id, target, mount(multiWriter))
		if _, err := os.ReadFile(filepath.Join(w.path(target), "marked")); err == nil {
			w.Fatal("the damage was not met")
		}
	},
}

// troubles are the health of a volume as the node sees it where it is used, and the condition that older callers read.
func (w *world) troubles(id, target string) (all []string, condition string) {
	w.Helper()
	resp, err := w.NodeGetVolumeHealth(w.ctx(), &csi.NodeGetVolumeHealthRequest{VolumeId: id, StagingTargetPath: w.path("staging-" + id), VolumePublishPath: w.path(target)})
	w.must(err)
	for _, e := range resp.GetVolumeHealth().GetHealthStatuses() {
		all = append(all, e.GetReason()+": "+e.GetMessage())
	}
	stats, err := w.NodeGetVolumeStats(w.ctx(), &csi.NodeGetVolumeStatsRequest{VolumeId: id, VolumePath: w.path(target)})
	w.must(err)
	_, _, n := protowire.ConsumeTag(stats.ProtoReflect().GetUnknown())
	inner, _ := protowire.ConsumeBytes(stats.ProtoReflect().GetUnknown()[n:])
	return all, string(inner)
}

// known waits until the backend knows what is wrong with a volume, which then shows in lists and objects, and nothing if
// reason is empty.
func (w *world) known(id, reason string, words ...string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.ctx(), time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		resp, err := w.ControllerGetVolumeHealth(ctx, &csi.ControllerGetVolumeHealthRequest{VolumeId: id})
		w.must(err)
		all := resp.GetVolumeHealth().GetHealthStatuses()
		switch {
		case len(all) == 0 && reason == "":
			return
		case len(all) == 1 && all[0].GetReason() == reason:
			for _, word := range words {
				if !strings.Contains(all[0].GetMessage(), word) {
					w.Errorf("%q is not in: %s", word, all[0].GetMessage())
				}
			}
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			w.Fatalf("of volume %s is known: %v; want %q", id, all, reason)
		}
	}
}

func TestHealth_ErrorsOfAVolumeInUseAreReported(t *testing.T) {
	for fs, meet := range meetErrors {
		t.Run(fs, func(t *testing.T) {
			w := newWorld(t, imageOnXFS, "")
			id := w.create("v", fsType(fs)).GetVolumeId()
			w.use(id, "target", mount(multiWriter))
			if all, _ := w.troubles(id, "target"); len(all) > 0 {
				t.Errorf("a good volume has %q", all)
			}
			meet(w, id, "target")
			all, condition := w.troubles(id, "target")
			if len(all) == 0 || !strings.HasPrefix(all[0], "FileSystemErrors: ") || !strings.Contains(condition, "the "+fs+" at ") {
				t.Errorf("it has %q, and older callers read %q", all, condition)
			}
			w.known(id, "FileSystemErrors", fs, "stop the pods")
			w.release(id, "target")
			w.known(id, "FileSystemErrors") // that it is not in use mends nothing
			w.use(id, "target", mount(multiWriter))
			if fs == "btrfs" {
				w.known(id, "FileSystemErrors")
				w.command(nil, "btrfs", "device", "stats", "-z", w.path("target"))
			}
			w.known(id, "") // mended when it was mounted
			w.release(id, "target")
			w.remove(id)
			w.nothingLeft()
		})
	}
}

func TestHealth_IOErrorsOfTheDeviceLastUntilItIsAttachedAgain(t *testing.T) {
	for kind, of := range map[string]struct {
		make func(*csi.CreateVolumeRequest)
		use  *csi.VolumeCapability
	}{
		"raw": {func(q *csi.CreateVolumeRequest) {
			q.VolumeCapabilities, q.Parameters = []*csi.VolumeCapability{block(multiWriter)}, nil
		}, block(multiWriter)},
		"with files": {fsType("ext4"), mount(multiWriter)},
	} {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t, imageOnXFS, "")
			id := w.create("v", of.make).GetVolumeId()
			w.use(id, "target", of.use)
			if all, _ := w.troubles(id, "target"); len(all) > 0 {
				t.Errorf("a good volume has %q", all)
			}
			w.failReading(id, func() bool { all, _ := w.troubles(id, "target"); return len(all) > 0 })
			all, condition := w.troubles(id, "target")
			if len(all) != 1 || !strings.HasPrefix(all[0], "DeviceErrors: ") || !strings.Contains(condition, "I/O errors of loop") {
				t.Errorf("it has %q, and older callers read %q", all, condition)
			}
			w.known(id, "DeviceErrors", "I/O errors of loop", "once all pods of the volume were stopped")
			w.release(id, "target")
			w.known(id, "DeviceErrors") // that it is not in use mends nothing
			w.use(id, "target", of.use)
			w.known(id, "")
			w.release(id, "target")
			w.remove(id)
			w.nothingLeft()
		})
	}
}

// failReading meets I/O errors of the device of a volume until they are seen.
func (w *world) failReading(id string, seen func() bool) {
	w.Helper()
	devices, err := nodeops.LoopsOf(w.image(id))
	if err != nil || len(devices) != 1 {
		w.Fatalf("volume %s is attached to %v, %v", id, devices, err)
	}
	ctx, cancel := context.WithTimeout(w.ctx(), time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !seen() {
		hostfs.FailReading(w.T, w.image(id), devices[0])
		select {
		case <-tick.C:
		case <-ctx.Done():
			w.Fatal("the I/O errors are not seen")
		}
	}
}

func TestHealth_RefusedOrUngrownVolumeIsNotHealthy(t *testing.T) {
	w := newWorld(t, imageOnXFS, "")
	id := w.written()
	w.expand(id, gib)
	w.debugfs(id, "clri <7>")
	w.use(id, "target", mount(multiWriter))
	w.known(id, "NotGrown", "1Gi", "e2fsck -f on a copy of "+w.image(id))
	w.restart() // after which the driver knows the fault, but not its cause
	w.known(id, "NotGrown", "512Mi of 1024Mi")
	w.release(id, "target")
	w.debugfs(id, "set_super_value state 3")
	if w.stage(id, mount(multiWriter)) == nil {
		t.Fatal("it was staged")
	}
	w.known(id, "FileSystemErrors", "e2fsck -f "+w.image(id))
	w.command([]int{1}, "e2fsck", "-f", "-y", w.image(id))
	w.use(id, "target", mount(multiWriter))
	w.known(id, "")
	w.release(id, "target")
	w.remove(id)
	w.nothingLeft()
}

func TestHealth_VolumeInADirectoryFollowsTheFileSystemOfItsPool(t *testing.T) {
	w := newWorld(t, setting{"directory", hostfs.Btrfs}, "")
	id := w.create("v", nil).GetVolumeId()
	w.use(id, "target", mount(multiWriter))
	w.known(id, "")
	damageFile(w, "target")
	all, condition := w.troubles(id, "target")
	if len(all) == 0 || !strings.Contains(condition, "the btrfs at ") {
		t.Errorf("it has %q, and older callers read %q", all, condition)
	}
	w.known(id, "PoolErrors", "pool fast", w.pool)
	w.command(nil, "btrfs", "device", "stats", "-z", w.pool)
	w.known(id, "")
	w.release(id, "target")
	w.remove(id)
	w.nothingLeft()
}

// damageFile writes a file into a btrfs, damages it beneath that, and reads it.
func damageFile(w *world, target string) {
	w.Helper()
	const block = 4096
	marker := []byte(strings.Repeat("by a test ", 7000))
	w.write(target, "marked", string(marker))
	f, err := os.Open(filepath.Join(w.path(target), "marked"))
	w.must(err)
	defer f.Close()
	w.must(unix.Syncfs(int(f.Fd())))
	m, err := nodeops.MountAt(w.pool)
	w.must(err)
	name, err := nodeops.BackingFile(m.Source)
	w.must(err)
	disk, err := os.OpenFile(name, os.O_RDWR, 0)
	w.must(err)
	defer disk.Close()
	content := make([]byte, block)
	for at := int64(0); !bytes.Equal(content, marker[:block]); at += block {
		at, err = disk.Seek(at, unix.SEEK_DATA)
		w.must(err) // at the end, where the file is not on the disk as it was written
		at = at / block * block
		_, err = disk.ReadAt(content, at)
		w.must(err)
		if bytes.Equal(content, marker[:block]) {
			hostfs.Overwrite(w.T, m.Source, at, []byte("damage")...)
		}
	}
	w.must(unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
	if _, err := f.Read(content); err == nil {
		w.Fatal("the damage was not met")
	}
}
