package sanity

import (
	"os"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

func statsAreThoseOfTheVolumeAndNotOfThePool(w *world) {
	id := w.create("v", nil).GetVolumeId()
	w.use(id, "target", mount(multiWriter))
	before, files := w.usage(id, "target")
	if total := before.GetTotal(); total < 256*mib || total > 512*mib {
		w.Errorf("total is %d bytes", total)
	}
	f, err := os.Create(filepath.Join(w.path("target"), "file"))
	w.must(err)
	_, err = f.Write(make([]byte, 64*mib))
	w.must(err)
	w.must(f.Sync())
	w.must(f.Close())
	after, filesAfter := w.usage(id, "target")
	if used := after.GetUsed() - before.GetUsed(); used < 60*mib || used > 70*mib {
		w.Errorf("64 MiB were written, used went from %d to %d", before.GetUsed(), after.GetUsed())
	}
	if lost := before.GetAvailable() - after.GetAvailable(); lost < 60*mib || lost > 70*mib {
		w.Errorf("64 MiB were written, available went from %d to %d", before.GetAvailable(), after.GetAvailable())
	}
	countsInodes := w.engine == "image" || w.kind.Name != "btrfs"
	if countsInodes != (files != nil) {
		w.Fatalf("inodes: %v", files)
	}
	if countsInodes && filesAfter.GetUsed() != files.GetUsed()+1 {
		w.Errorf("one file was made, used inodes went from %d to %d", files.GetUsed(), filesAfter.GetUsed())
	}
	w.release(id, "target")
	w.remove(id)
	w.nothingLeft()
}

func statsOfWhatIsNotThereAreNotFound(w *world) {
	id := w.create("v", nil).GetVolumeId()
	other := w.create("other", nil).GetVolumeId()
	w.use(other, "other", mount(multiWriter))
	for _, path := range []string{"/", "some/path", "/nowhere", w.scratch, w.path("other"), "/etc/passwd"} {
		_, err := w.NodeGetVolumeStats(w.ctx(), &csi.NodeGetVolumeStatsRequest{VolumeId: id, VolumePath: path})
		w.expectError(err, codes.NotFound, path)
	}
	_, err := w.NodeGetVolumeStats(w.ctx(), &csi.NodeGetVolumeStatsRequest{VolumeId: "gone", VolumePath: w.path("other")})
	w.expectError(err, codes.NotFound, "gone")
	_, err = w.NodeGetVolumeStats(w.ctx(), &csi.NodeGetVolumeStatsRequest{VolumeId: id})
	w.expectError(err, codes.InvalidArgument, "volume_path")
	w.release(other, "other")
	w.remove(other)
	w.remove(id)
	w.nothingLeft()
}

func theHealthOfAVolumeIsThatOfItsMountsToo(w *world) {
	id := w.create("v", nil).GetVolumeId()
	w.use(id, "target", mount(multiWriter))
	problems := func(path string) []*csi.VolumeHealth_VolumeHealthEntry {
		resp, err := w.NodeGetVolumeHealth(w.ctx(), &csi.NodeGetVolumeHealthRequest{VolumeId: id, StagingTargetPath: w.path("staging-v"), VolumePublishPath: path})
		w.must(err)
		return resp.GetVolumeHealth().GetHealthStatuses()
	}
	if got := problems(w.path("target")); len(got) > 0 {
		w.Errorf("a good volume has %v", got)
	}
	if got := problems(w.path("elsewhere")); len(got) != 1 || got[0].GetStatus() != csi.VolumeHealthErrorType_INACCESSIBLE {
		w.Errorf("a volume that is not mounted where it should be has %v", got)
	}
	w.release(id, "target")
	w.remove(id)
	w.nothingLeft()
}
