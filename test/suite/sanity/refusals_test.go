package sanity

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

func aDirectoryCannotBeABlockVolume(w *world) {
	req := w.request("v")
	req.VolumeCapabilities = []*csi.VolumeCapability{block(multiWriter)}
	_, err := w.CreateVolume(w.ctx(), req)
	w.expectError(err, codes.InvalidArgument, "Block", "engine Image")
	w.nothingLeft()
}

func aDamagedVolumeIsShownRefusedAndHidesNoOther(w *world) {
	damages := map[string]string{
		"truncated": `{"version":1,"id":"truncated"`,
		"empty":     ``,
		"newer":     `{"version":99,"id":"newer"}`,
		"strangers": `{"version":1,"id":"other"}`,
		"outside":   `{"version":1,"id":"../../etc"}`,
	}
	for id := range damages {
		w.create(id, nil)
	}
	good := w.create("good", nil).GetVolumeId()
	w.Kill()
	for id, content := range damages {
		w.must(os.WriteFile(filepath.Join(w.pool, "volumes", id, "meta.json"), []byte(content), 0o600))
	}
	w.start()
	list, err := w.ListVolumes(w.ctx(), &csi.ListVolumesRequest{})
	if err != nil || len(list.GetEntries()) != len(damages)+1 {
		w.Fatalf("listed %v, %v", list, err)
	}
	health, err := w.ControllerListVolumeHealth(w.ctx(), &csi.ControllerListVolumeHealthRequest{})
	if err != nil || len(health.GetEntries()) != len(damages) {
		w.Fatalf("ailing are %v, %v", health, err)
	}
	for id := range damages {
		w.expectError(w.stage(id, mount(multiWriter)), codes.FailedPrecondition, id, "meta.json")
	}
	w.use(good, "target", mount(multiWriter))
	w.release(good, "target")
}

func aCorruptImageIsNeitherMountedNorFormatted(w *world) {
	id := w.create("v", nil).GetVolumeId()
	image := filepath.Join(w.pool, "volumes/v/image")
	f, err := os.OpenFile(image, os.O_RDWR, 0)
	w.must(err)
	garbage := []byte(strings.Repeat("garbage ", 16*1024))
	_, err = f.WriteAt(garbage, 0)
	w.must(err)
	w.must(f.Close())
	w.expectError(w.stage(id, mount(multiWriter)), codes.FailedPrecondition, "v", "xfs")
	got := make([]byte, len(garbage))
	f, err = os.Open(image)
	w.must(err)
	_, err = f.ReadAt(got, 0)
	w.must(err)
	w.must(f.Close())
	if string(got) != string(garbage) {
		w.Error("the image was written to")
	}
	w.must(w.unstage(id))
	w.remove(id)
	w.nothingLeft()
}
