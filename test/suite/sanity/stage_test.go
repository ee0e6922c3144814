package sanity

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

// mountedAt counts the mounts that lie upon each other at a path.
func (w *world) mountedAt(name string) (count int) {
	w.Helper()
	all, err := nodeops.Mounts()
	w.must(err)
	for _, m := range all {
		if m.Target == w.path(name) {
			count++
		}
	}
	return count
}

func repeatsOfStageAndPublishStackNothing(w *world) {
	id := w.create("v", nil).GetVolumeId()
	for range 3 {
		w.must(w.stage(id, mount(multiWriter)))
	}
	if open := w.openDevices(); len(open) > 0 {
		w.Errorf("the process keeps open %v: the device would outlive its mount", open)
	}
	for range 3 {
		w.must(w.publish(id, "target", mount(multiWriter), false))
	}
	if staged, published := w.mountedAt("staging-v"), w.mountedAt("target"); staged != 1 || published != 1 {
		w.Errorf("%d mounts at staging, %d at the target", staged, published)
	}
	if loops := w.loops(); len(loops) > 1 {
		w.Errorf("attached to %v", loops)
	}
	w.write("target", "file", "kept")
	for range 3 {
		w.must(w.unpublish(id, "target"))
	}
	w.expectGone("target")
	w.expectFile("staging-v", "file", "kept")
	for range 3 {
		w.must(w.unstage(id))
	}
	w.remove(id)
	w.nothingLeft()
}

// A prober, such as udev's, has the device open for a moment: the kernel then detaches it when the prober closes it.
func aVolumeThatIsUnstagedCanBeDeletedAtOnce(w *world) {
	id := w.create("v", nil).GetVolumeId()
	w.must(w.stage(id, mount(singleWriter)))
	var probers []*os.File
	for _, device := range w.loops() {
		f, err := os.Open(device)
		w.must(err)
		probers = append(probers, f)
	}
	closed, unstaged := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(closed)
		for range time.Tick(time.Millisecond) {
			if m, err := nodeops.MountAt(w.path("staging-v")); m == nil || err != nil {
				break
			}
		}
		select { // longer than an unstage that does not wait
		case <-unstaged:
		case <-time.After(100 * time.Millisecond):
		}
		for _, f := range probers {
			f.Close()
		}
	}()
	err := w.unstage(id)
	loops := w.loops()
	close(unstaged)
	<-closed
	w.must(err)
	if len(loops) > 0 {
		w.Errorf("unstaged, but still attached to %v", loops)
	}
	w.remove(id)
	w.nothingLeft()
}

func aStagingPathThatCannotBeIsRefusedAndLeftAlone(w *world) {
	id := w.create("v", nil).GetVolumeId()
	w.must(os.WriteFile(w.path("file"), []byte("precious"), 0o600))
	w.must(os.Symlink(w.stagingDir("real"), w.path("link")))
	w.must(exec.Command("mount", "-t", "tmpfs", "stranger", w.stagingDir("taken")).Run())
	w.write("taken", "file", "precious")
	for path, code := range map[string]codes.Code{
		"":                          codes.InvalidArgument,
		"relative/path":             codes.InvalidArgument,
		"/":                         codes.InvalidArgument,
		w.path("real") + "/../real": codes.InvalidArgument,
		w.path("missing"):           codes.FailedPrecondition,
		w.path("missing/dir"):       codes.FailedPrecondition,
		w.path("file"):              codes.FailedPrecondition,
		w.path("link"):              codes.FailedPrecondition,
		w.path("taken"):             codes.FailedPrecondition,
	} {
		w.expectError(w.stageAt(id, path, mount(multiWriter)), code, filepath.Base(path)[1:])
	}
	_, err := w.NodeUnstageVolume(w.ctx(), &csi.NodeUnstageVolumeRequest{VolumeId: id, StagingTargetPath: w.path("taken")})
	w.expectError(err, codes.FailedPrecondition, "taken", "stranger")
	w.expectFile("taken", "file", "precious")
	if b, err := os.ReadFile(w.path("file")); string(b) != "precious" {
		w.Errorf("the file now holds %q, %v", b, err)
	}
	if entries, err := os.ReadDir(w.path("real")); err != nil || len(entries) > 0 {
		w.Errorf("behind the link: %v, %v", entries, err)
	}
	w.must(exec.Command("umount", w.path("taken")).Run())
	w.remove(id)
	w.nothingLeft()
}

func aStagingPathBelowALinkIsThePathItNames(w *world) {
	id := w.create("v", nil).GetVolumeId()
	w.stagingDir("disk/staging-v")
	w.must(os.Symlink(w.path("disk"), w.path("kubelet")))
	staging := w.path("kubelet/staging-v")
	for range 2 {
		w.must(w.stageAt(id, staging, mount(multiWriter)))
	}
	if n := w.mountedAt("disk/staging-v"); n != 1 {
		w.Errorf("%d mounts", n)
	}
	for range 2 {
		_, err := w.NodeUnstageVolume(w.ctx(), &csi.NodeUnstageVolumeRequest{VolumeId: id, StagingTargetPath: staging})
		w.must(err)
	}
	w.remove(id)
	w.nothingLeft()
}

func aRepeatedStageForAnotherUseIsRefused(w *world) {
	id := w.create("v", nil).GetVolumeId()
	w.must(w.stage(id, mount(multiWriter)))
	w.expectError(w.stage(id, mount(multiWriter, "ro")), codes.AlreadyExists, "writable", "read-only")
	w.expectError(w.stage(id, mount(readerOnly)), codes.AlreadyExists, "writable", "read-only")
	w.expectError(w.stage(id, block(multiWriter)), codes.FailedPrecondition, "Filesystem", "Block")
	other := mount(multiWriter)
	other.GetMount().FsType = "jfs"
	w.expectError(w.stage(id, other), codes.FailedPrecondition, "jfs")
	w.expectError(w.stage(id, mount(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER)), codes.InvalidArgument, "MULTI_NODE_MULTI_WRITER")
	w.expectError(w.stage("gone", mount(multiWriter)), codes.NotFound, "gone")
	if n := w.mountedAt("staging-v"); n != 1 {
		w.Errorf("%d mounts", n)
	}
	w.release(id)
	w.must(w.stage(id, mount(readerOnly)))
	w.expectError(w.stage(id, mount(multiWriter)), codes.AlreadyExists, "writable", "read-only")
	w.expectError(w.publish(id, "target", mount(multiWriter), false), codes.FailedPrecondition, "read-only")
	w.must(w.publish(id, "target", mount(readerOnly), false))
	if err := os.WriteFile(w.path("target/file"), nil, 0o600); err == nil {
		w.Error("a volume for readers only was written to")
	}
	w.release(id, "target")
	w.remove(id)
	w.nothingLeft()
}

func mountFlagsReachTheTarget(w *world) {
	id := w.create("v", nil).GetVolumeId()
	w.use(id, "target", mount(multiWriter, "noexec", "nosuid", "noatime"))
	var st unix.Statfs_t
	w.must(unix.Statfs(w.path("target"), &st))
	for name, flag := range map[string]int64{"noexec": unix.ST_NOEXEC, "nosuid": unix.ST_NOSUID, "noatime": unix.ST_NOATIME} {
		if st.Flags&flag == 0 {
			w.Errorf("%s is not in force", name)
		}
	}
	w.must(w.publish(id, "reader", mount(multiWriter, "noexec", "nosuid", "noatime"), true))
	w.must(unix.Statfs(w.path("reader"), &st))
	if st.Flags&unix.ST_NOEXEC == 0 || st.Flags&unix.ST_RDONLY == 0 {
		w.Errorf("flags of the read-only target are %#x", st.Flags)
	}
	// A target may be stricter than what is staged.
	w.must(w.publish(id, "strict", mount(multiWriter, "nodev"), false))
	w.must(unix.Statfs(w.path("strict"), &st))
	if st.Flags&unix.ST_NODEV == 0 {
		w.Error("nodev is not in force at the target that requested it")
	}
	w.release(id, "target", "reader", "strict")
	w.remove(id)
	w.nothingLeft()
}

func mountFlagsThatCannotApplyAreRefusedAndNothingIsLeft(w *world) {
	id := w.create("v", nil).GetVolumeId()
	for _, flag := range []string{"remount", "loop=/dev/loop0", "x-mount.mkdir", "noatime,bind"} {
		w.expectError(w.stage(id, mount(multiWriter, flag)), codes.InvalidArgument, flag)
	}
	code := codes.FailedPrecondition
	if w.engine == "directory" {
		code = codes.InvalidArgument
	}
	w.expectError(w.stage(id, mount(multiWriter, "nosuchflag")), code, "v")
	w.remove(id)
	w.nothingLeft()
}

func TestClone_IsMountedBesideItsSource(t *testing.T) {
	hostfs.RequireRoot(t)
	for _, fsType := range []string{"ext4", "xfs", "btrfs"} {
		t.Run(fsType, func(t *testing.T) {
			w := newWorld(t, imageOnXFS, "")
			as := func(q *csi.CreateVolumeRequest) {
				q.Parameters = map[string]string{"csi.storage.k8s.io/fstype": fsType}
			}
			source := w.create("source", as).GetVolumeId()
			w.use(source, "source", mount(multiWriter))
			w.write("source", "file", "before")
			clone := w.create("clone", func(q *csi.CreateVolumeRequest) {
				as(q)
				q.VolumeContentSource = fromVolume(source)
			}).GetVolumeId()
			w.use(clone, "clone", mount(multiWriter))
			w.write("source", "file", "after")
			w.expectFile("clone", "file", "before")
			w.expectFile("source", "file", "after")
			w.release(source, "source")
			w.release(clone, "clone")
			w.remove(source)
			w.remove(clone)
			w.nothingLeft()
		})
	}
}

func theGroupOfAVolumeMayWriteIt(w *world) {
	id := w.create("v", nil).GetVolumeId()
	w.use(id, "target", mount(multiWriter))
	w.write("target", "old", "")
	w.release(id, "target")
	w.use(id, "target", ofGroup("4711"))
	w.expectGroup(4711, "target", "target/old")
	w.release(id, "target")
	w.remove(id)
	w.nothingLeft()
}

// The kubelet leaves a volume staged when the next pod is there before the last one has gone.
func aVolumeThatStaysStagedGoesToTheGroupOfTheNextPod(w *world) {
	id := w.create("v", nil).GetVolumeId()
	w.use(id, "first", ofGroup("4711"))
	w.write("first", "old", "")
	w.must(w.unpublish(id, "first"))
	w.must(w.publish(id, "reader", ofGroup("5822"), true))
	w.expectGroup(4711, "reader")
	w.must(w.publish(id, "second", ofGroup("5822"), false))
	w.expectGroup(5822, "second", "second/old")
	w.release(id, "reader", "second")
	w.remove(id)
	w.nothingLeft()
}

func ofGroup(gid string) *csi.VolumeCapability {
	c := mount(multiWriter)
	c.GetMount().VolumeMountGroup = gid
	return c
}

func (w *world) expectGroup(gid uint32, names ...string) {
	w.Helper()
	for _, name := range names {
		var st unix.Stat_t
		w.must(unix.Stat(w.path(name), &st))
		if st.Gid != gid || st.Mode&0o060 != 0o060 {
			w.Errorf("%s belongs to group %d with mode %o, not to %d", name, st.Gid, st.Mode, gid)
		}
	}
}

func manyCallersAtOnceGetOneMount(w *world) {
	id := w.create("v", nil).GetVolumeId()
	staging := w.stagingDir("staging-v")
	const callers = 16
	atOnce := func(call func() error) {
		w.Helper()
		errs := make(chan error, callers)
		for range callers {
			go func() { errs <- call() }()
		}
		for range callers {
			w.must(<-errs)
		}
	}
	ctx := w.ctx()
	atOnce(func() error {
		_, err := w.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: id, StagingTargetPath: staging, VolumeCapability: mount(multiWriter)})
		return err
	})
	target := w.path("target")
	atOnce(func() error {
		_, err := w.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
			VolumeId: id, StagingTargetPath: staging, TargetPath: target, VolumeCapability: mount(multiWriter),
		})
		return err
	})
	if staged, published, loops := w.mountedAt("staging-v"), w.mountedAt("target"), w.loops(); staged != 1 || published != 1 || len(loops) > 1 {
		w.Errorf("%d mounts at staging, %d at the target, devices %v", staged, published, loops)
	}
	atOnce(func() error {
		_, err := w.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: target})
		return err
	})
	atOnce(func() error {
		_, err := w.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: id, StagingTargetPath: staging})
		return err
	})
	w.remove(id)
	w.nothingLeft()
}
