package sanity

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

func aTargetThatCannotBeIsRefusedAndLeftAlone(w *world) {
	id := w.create("v", nil).GetVolumeId()
	w.must(w.stage(id, mount(multiWriter)))
	w.must(os.WriteFile(w.path("file"), []byte("precious"), 0o600))
	w.must(os.Symlink(w.stagingDir("real"), w.path("link")))
	w.stagingDir("full")
	w.write("full", "file", "precious")
	w.must(exec.Command("mount", "-t", "tmpfs", "stranger", w.stagingDir("taken")).Run())
	for _, target := range []string{"file", "link", "full", "taken", "missing/dir"} {
		w.expectError(w.publish(id, target, mount(multiWriter), false), codes.FailedPrecondition, target)
	}
	for _, target := range []string{"file", "link", "full", "taken"} {
		w.expectError(w.unpublish(id, target), codes.FailedPrecondition, target)
	}
	w.must(w.unpublish(id, "missing/dir"))
	w.expectFile(".", "file", "precious")
	w.expectFile("full", "file", "precious")
	if w.mountedAt("taken") != 1 {
		w.Error("the stranger's mount is gone")
	}
	if _, err := os.Lstat(w.path("link")); err != nil {
		w.Error(err)
	}
	w.must(exec.Command("umount", w.path("taken")).Run())
	w.release(id)
	w.remove(id)
	w.nothingLeft()
}

func aTargetMayBeAnEmptyDirectory(w *world) {
	id := w.create("v", nil).GetVolumeId()
	w.stagingDir("target")
	w.use(id, "target", mount(multiWriter))
	w.release(id, "target")
	w.expectGone("target")
	w.remove(id)
	w.nothingLeft()
}

func onlyWhatIsStagedIsPublished(w *world) {
	id := w.create("v", nil).GetVolumeId()
	other := w.create("other", nil).GetVolumeId()
	w.stagingDir("staging-v")
	w.expectError(w.publish(id, "target", mount(multiWriter), false), codes.FailedPrecondition, "volume v is not mounted")
	w.must(w.stage(other, mount(multiWriter)))
	_, err := w.NodePublishVolume(w.ctx(), &csi.NodePublishVolumeRequest{
		VolumeId: id, StagingTargetPath: w.path("staging-other"), TargetPath: w.path("target"), VolumeCapability: mount(multiWriter),
	})
	w.expectError(err, codes.FailedPrecondition, "staging-other", "not of volume v")
	_, err = w.NodePublishVolume(w.ctx(), &csi.NodePublishVolumeRequest{VolumeId: id, TargetPath: w.path("target"), VolumeCapability: mount(multiWriter)})
	w.expectError(err, codes.FailedPrecondition, "staging_target_path")
	w.expectGone("target")
	// Nor is another volume's mount taken away in its name.
	w.must(w.publish(other, "target", mount(multiWriter), false))
	w.expectError(w.unpublish(id, "target"), codes.FailedPrecondition, "target", "volume v")
	w.expectError(w.unpublish("gone", "target"), codes.FailedPrecondition, "target", "volume gone")
	if w.mountedAt("target") != 1 {
		w.Error("it was unmounted")
	}
	w.release(other, "target")
	w.remove(id)
	w.remove(other)
	w.nothingLeft()
}

func aReadOnlyTargetTakesNoWrites(w *world) {
	id := w.create("v", nil).GetVolumeId()
	w.must(w.stage(id, mount(readerOnly)))
	w.expectError(w.publish(id, "writer", mount(multiWriter), false), codes.FailedPrecondition, "volume v is mounted read-only")
	w.expectGone("writer")
	w.must(w.unstage(id))
	w.use(id, "writer", mount(multiWriter))
	for range 2 {
		w.must(w.publish(id, "reader", mount(multiWriter), true))
	}
	w.expectError(w.publish(id, "reader", mount(multiWriter), false), codes.AlreadyExists, "reader", "read-only")
	w.expectError(w.publish(id, "writer", mount(multiWriter), true), codes.AlreadyExists, "writer", "writable")
	w.write("writer", "file", "shared")
	w.expectFile("reader", "file", "shared")
	if err := os.WriteFile(w.path("reader/file"), []byte("x"), 0o600); !errors.Is(err, unix.EROFS) {
		w.Errorf("writing through the read-only target: %v", err)
	}
	w.release(id, "reader", "writer")
	w.remove(id)
	w.nothingLeft()
}

func accessModesSayHowManyTargetsThereMayBe(w *world) {
	for id, test := range map[string]struct {
		mode csi.VolumeCapability_AccessMode_Mode
		code codes.Code
	}{
		"single-writer": {singleWriter, codes.FailedPrecondition},
		"writer":        {csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, codes.FailedPrecondition},
		"reader":        {readerOnly, codes.FailedPrecondition},
		"multi-writer":  {multiWriter, codes.OK},
	} {
		w.create(id, nil)
		w.use(id, "first", mount(test.mode))
		w.must(w.publish(id, "first", mount(test.mode), false))
		err := w.publish(id, "second", mount(test.mode), false)
		if test.code == codes.OK {
			w.must(err)
			w.release(id, "second", "first")
		} else {
			w.expectError(err, test.code, w.path("first"), test.mode.String())
			w.expectGone("second")
			w.must(w.unpublish(id, "first"))
			w.must(w.publish(id, "second", mount(test.mode), false))
			w.release(id, "second")
		}
		w.remove(id)
	}
	w.nothingLeft()
}

func TestPublish_MountSeenTwiceIsOneTarget(t *testing.T) {
	hostfs.RequireRoot(t)
	w := newWorld(t, imageOnXFS, "")
	// A kubelet whose directory is bound elsewhere too shows each of its mounts at two paths.
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("mount", args...).CombinedOutput(); err != nil {
			t.Fatalf("mount %v: %v: %s", args, err, out)
		}
	}
	run("-t", "tmpfs", "kubelet", w.stagingDir("kubelet"))
	run("--make-shared", w.path("kubelet"))
	run("--bind", w.path("kubelet"), w.stagingDir("again"))
	id := w.create("v", nil).GetVolumeId()
	w.must(w.stageAt(id, w.stagingDir("kubelet/staging"), mount(singleWriter)))
	publish := func(target string) error {
		_, err := w.NodePublishVolume(w.ctx(), &csi.NodePublishVolumeRequest{
			VolumeId: id, StagingTargetPath: w.path("kubelet/staging"), TargetPath: w.path("kubelet/" + target), VolumeCapability: mount(singleWriter),
		})
		return err
	}
	w.must(publish("first"))
	if w.mountedAt("again/first") != 1 || w.mountedAt("again/staging") != 1 {
		t.Fatal("the mounts are not seen twice; this test shows nothing")
	}
	w.must(publish("first"))
	w.expectError(publish("second"), codes.FailedPrecondition, "first")
	w.must(w.unpublish(id, "kubelet/first"))
	_, err := w.NodeUnstageVolume(w.ctx(), &csi.NodeUnstageVolumeRequest{VolumeId: id, StagingTargetPath: w.path("kubelet/staging")})
	w.must(err)
	w.remove(id)
	run("--make-private", w.path("kubelet"))
	w.must(exec.Command("umount", w.path("again")).Run())
	w.must(exec.Command("umount", w.path("kubelet")).Run())
	w.nothingLeft()
}

func aKilledProcessLeavesVolumesInUse(w *world) {
	id := w.create("v", nil).GetVolumeId()
	w.must(w.stage(id, mount(multiWriter)))
	w.restart()
	w.must(w.publish(id, "target", mount(multiWriter), false))
	w.write("target", "file", "kept")
	w.restart()
	w.must(w.stage(id, mount(multiWriter)))
	w.must(w.publish(id, "target", mount(multiWriter), false))
	w.expectFile("target", "file", "kept")
	_, err := w.DeleteVolume(w.ctx(), &csi.DeleteVolumeRequest{VolumeId: id})
	w.expectError(err, codes.FailedPrecondition, "v", "in use")
	w.must(w.unpublish(id, "target"))
	w.restart()
	w.must(w.unstage(id))
	w.remove(id)
	w.nothingLeft()
}

func aNodeDrainsWhateverBecameOfItsVolumes(w *world) {
	for _, id := range []string{"kept", "gone"} {
		w.use(w.create(id, nil).GetVolumeId(), "target-"+id, mount(multiWriter))
	}
	w.must(os.RemoveAll(w.pool + "/volumes/gone"))
	w.restart()
	w.must(w.unpublish("gone", "target-gone"))
	w.expectGone("target-gone")
	w.must(w.unstage("gone"))
	if n := w.mountedAt("staging-gone"); n != 0 {
		w.Errorf("%d mounts are left", n)
	}
	w.release("kept", "target-kept")
	w.remove("kept")
	w.nothingLeft()
}
