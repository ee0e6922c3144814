package sanity

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

func (w *world) usage(id, target string) (bytes, inodes *csi.VolumeUsage) {
	w.Helper()
	resp, err := w.NodeGetVolumeStats(w.ctx(), &csi.NodeGetVolumeStatsRequest{VolumeId: id, VolumePath: w.path(target)})
	if err != nil {
		w.Fatal(err)
	}
	for _, u := range resp.GetUsage() {
		if u.GetUnit() == csi.VolumeUsage_BYTES {
			bytes = u
		} else {
			inodes = u
		}
	}
	return bytes, inodes
}

func (w *world) expand(id string, size int64) *csi.ControllerExpandVolumeResponse {
	w.Helper()
	resp, err := w.ControllerExpandVolume(w.ctx(), &csi.ControllerExpandVolumeRequest{VolumeId: id, CapacityRange: &csi.CapacityRange{RequiredBytes: size}})
	if err != nil {
		w.Fatal(err)
	}
	return resp
}

func aVolumeGrowsWhileItIsUsed(w *world) {
	id := w.create("v", nil).GetVolumeId()
	w.must(w.stage(id, mount(multiWriter)))
	w.must(w.publish(id, "reader", mount(multiWriter), true))
	w.must(w.publish(id, "target", mount(multiWriter), false))
	w.write("target", "file", "kept")
	// Without its staging mount the first mount to be found is one that nothing can be grown through.
	w.must(w.unstage(id))
	before, _ := w.usage(id, "target")
	if needsNode := w.expand(id, gib).GetNodeExpansionRequired(); needsNode != (w.engine == "image") {
		w.Errorf("node expansion required: %t", needsNode)
	}
	// A read-only target is as good as any to say which volume is meant.
	for _, target := range []string{"reader", "target"} {
		resp, err := w.NodeExpandVolume(w.ctx(), &csi.NodeExpandVolumeRequest{
			VolumeId: id, VolumePath: w.path(target), StagingTargetPath: w.path("staging-v"), CapacityRange: &csi.CapacityRange{RequiredBytes: gib},
		})
		if err != nil || resp.GetCapacityBytes() != gib {
			w.Fatalf("through %s: %v, %v", target, resp, err)
		}
	}
	after, _ := w.usage(id, "target")
	if grown := after.GetTotal() - before.GetTotal(); grown < 400*mib {
		w.Errorf("grew from %d to %d bytes", before.GetTotal(), after.GetTotal())
	}
	w.expectFile("target", "file", "kept")
	w.release(id, "target", "reader")
	w.remove(id)
	w.nothingLeft()
}

func aVolumeThatGrewUnusedIsLargeWhenItIsStaged(w *world) {
	id := w.create("v", nil).GetVolumeId()
	w.expand(id, gib)
	w.use(id, "target", mount(multiWriter))
	if bytes, _ := w.usage(id, "target"); bytes.GetTotal() < 900*mib {
		w.Errorf("it has %d bytes", bytes.GetTotal())
	}
	w.release(id, "target")
	w.remove(id)
	w.nothingLeft()
}

func TestVolume_OfExt4GrowsWhileInUse(t *testing.T) {
	hostfs.RequireRoot(t)
	if !has(t, unix.CAP_SYS_RESOURCE) {
		hostfs.Skip(t, "ext4-growth", "the kernel lets only CAP_SYS_RESOURCE grow an ext4 in use, and this root has not got it")
	}
	w := newWorld(t, imageOnXFS, "")
	id := w.create("v", func(q *csi.CreateVolumeRequest) { q.Parameters = nil }).GetVolumeId()
	w.use(id, "target", mount(multiWriter))
	w.expand(id, gib)
	_, err := w.NodeExpandVolume(w.ctx(), &csi.NodeExpandVolumeRequest{VolumeId: id, VolumePath: w.path("target")})
	w.must(err)
	if bytes, _ := w.usage(id, "target"); bytes.GetTotal() < 900*mib {
		t.Errorf("it has %d bytes", bytes.GetTotal())
	}
	w.release(id, "target")
	w.remove(id)
	w.nothingLeft()
}

func has(t *testing.T, capability int) bool {
	t.Helper()
	header, data := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
	check.OK(t, unix.Capget(&header, &data[0]))
	return data[capability/32].Effective&(1<<(capability%32)) != 0
}

func expandOnTheNodeRefusesWhatIsNotThere(w *world) {
	id := w.create("v", nil).GetVolumeId()
	w.use(id, "target", mount(multiWriter))
	expand := func(id, path string, size int64, c *csi.VolumeCapability) error {
		_, err := w.NodeExpandVolume(w.ctx(), &csi.NodeExpandVolumeRequest{
			VolumeId: id, VolumePath: path, CapacityRange: &csi.CapacityRange{RequiredBytes: size}, VolumeCapability: c,
		})
		return err
	}
	target := w.path("target")
	w.expectError(expand("gone", target, gib, nil), codes.NotFound, "gone")
	w.expectError(expand(id, "", gib, nil), codes.InvalidArgument, "volume_path")
	w.expectError(expand(id, "some/path", 1, nil), codes.NotFound, "some/path")
	w.expectError(expand(id, w.scratch, 1, nil), codes.NotFound, w.scratch)
	w.expectError(expand(id, target, gib, nil), codes.OutOfRange, "512Mi", "1Gi")
	w.expectError(expand(id, target, -1, nil), codes.InvalidArgument, "-1")
	w.expectError(expand(id, target, 1, block(multiWriter)), codes.InvalidArgument, "Block")
	w.release(id, "target")
	w.remove(id)
	w.nothingLeft()
}
