package sanity

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

// fsType chooses the file system of a volume that is an image.
func fsType(name string) func(*csi.CreateVolumeRequest) {
	return func(q *csi.CreateVolumeRequest) {
		q.Parameters = map[string]string{"csi.storage.k8s.io/fstype": name}
	}
}

func (w *world) image(id string) string { return filepath.Join(w.pool, "volumes", id, "image") }

// command runs a program whose exit code may be one of those given, beside 0.
func (w *world) command(codes []int, name string, args ...string) {
	w.Helper()
	cmd := exec.Command(name, args...)
	out, err := cmd.CombinedOutput()
	for _, code := range codes {
		if cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == code {
			return
		}
	}
	if err != nil {
		w.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
}

func (w *world) expandOnNode(id, target string) error {
	_, err := w.NodeExpandVolume(w.ctx(), &csi.NodeExpandVolumeRequest{VolumeId: id, VolumePath: w.path(target)})
	return err
}

func (w *world) hasAll(id, target string, all bool) {
	w.Helper()
	if bytes, _ := w.usage(id, target); bytes.GetTotal() > 900*mib != all {
		w.Errorf("it has %d bytes at %s", bytes.GetTotal(), target)
	}
}

// The kernel lets only CAP_SYS_RESOURCE grow an ext4 that is mounted.
func TestExt4_GrownUnusedNeedsNoCapability(t *testing.T) {
	w := newWorld(t, imageOnXFS, "", "--ephemeral-max-size=1Gi")
	id := w.create("v", fsType("ext4")).GetVolumeId()
	w.use(id, "target", mount(multiWriter))
	w.write("target", "file", "kept")
	w.release(id, "target")
	w.expand(id, gib)
	w.use(id, "target", mount(multiWriter))
	w.hasAll(id, "target", true)
	w.expectFile("target", "file", "kept")
	w.must(w.expandOnNode(id, "target"))
	restored := w.create("larger", func(q *csi.CreateVolumeRequest) {
		fsType("ext4")(q)
		q.CapacityRange.RequiredBytes = 2 * gib
		q.VolumeContentSource = fromVolume(id)
	}).GetVolumeId()
	w.use(restored, "larger", mount(multiWriter))
	if bytes, _ := w.usage(restored, "larger"); bytes.GetTotal() < 1800*mib {
		t.Errorf("the copy has %d bytes", bytes.GetTotal())
	}
	w.expectFile("larger", "file", "kept")
	w.release(restored, "larger")
	w.release(id, "target")
	w.remove(restored)
	w.remove(id)
	w.nothingLeft()
}

func TestExt4_ThatCannotGrowIsUsedAtItsSize(t *testing.T) {
	w := newWorld(t, imageOnXFS, "")
	id := w.create("v", fsType("ext4")).GetVolumeId()
	w.use(id, "target", mount(multiWriter))
	w.write("target", "file", "kept")
	w.release(id, "target")
	w.expand(id, gib)
	w.command(nil, "debugfs", "-w", "-R", "clri <7>", w.image(id)) // where its group descriptors would grow
	for range 2 {
		w.use(id, "target", mount(multiWriter))
		w.expectFile("target", "file", "kept")
		w.hasAll(id, "target", false)
		// The one code that is the kubelet no reason to keep a pod from the volume.
		w.expectError(w.expandOnNode(id, "target"), codes.FailedPrecondition, id, "1Gi")
		w.release(id, "target")
	}
	w.command([]int{1}, "e2fsck", "-f", "-y", w.image(id))
	w.use(id, "target", mount(multiWriter))
	w.hasAll(id, "target", true)
	w.expectFile("target", "file", "kept")
	w.release(id, "target")
	w.remove(id)
	w.nothingLeft()
}

func TestXFS_ThatCannotGrowIsUsedAtItsSize(t *testing.T) {
	hostfs.RequireRoot(t)
	w := newWorld(t, imageOnXFS, "")
	id := w.create("v", fsType("xfs")).GetVolumeId()
	w.expand(id, gib)
	mend := w.strace("-o", "/dev/null", "-P", w.stagingDir("staging-"+id), "-e", "inject=ioctl:error=EIO")
	w.must(w.stage(id, mount(multiWriter)))
	w.must(w.stage(id, mount(multiWriter))) // and when the attempt before was cut short
	w.must(w.publish(id, "target", mount(multiWriter), false))
	w.hasAll(id, "target", false)
	w.expectError(w.expandOnNode(id, "target"), codes.FailedPrecondition, id, "1Gi", "input/output error")
	mend()
	w.must(w.expandOnNode(id, "target"))
	w.hasAll(id, "target", true)
	w.release(id, "target")
	w.remove(id)
	w.nothingLeft()
}
