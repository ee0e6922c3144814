package sanity

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

func realPoolsRefuseByValueAndMakeNothing(w *world) {
	type request = csi.CreateVolumeRequest
	set := func(key, value string) func(*request) {
		return func(q *request) { q.Parameters = map[string]string{key: value} }
	}
	for name, test := range map[string]struct {
		change func(*request)
		code   codes.Code
		words  []string
	}{
		"unknown file system":   {set("csi.storage.k8s.io/fstype", "jfs"), codes.InvalidArgument, []string{"jfs"}},
		"file system as a path": {set("csi.storage.k8s.io/fstype", "../ext4"), codes.InvalidArgument, []string{"../ext4"}},
		"mkfs option, a path":   {set("mkfsOptions", "-d /etc"), codes.InvalidArgument, []string{"-d"}},
		"unknown pool":          {set("pool", "../fast"), codes.InvalidArgument, []string{"../fast", "fast"}},
		"above the pool":        {func(q *request) { q.CapacityRange.RequiredBytes = 1 << 40 }, codes.ResourceExhausted, []string{"fast", "1099511627776"}},
		"limit too small":       {func(q *request) { q.CapacityRange = &csi.CapacityRange{LimitBytes: 4096} }, codes.OutOfRange, []string{"4096"}},
		"name of 10000 bytes":   {func(q *request) { q.Name = strings.Repeat("n", 10000) }, codes.InvalidArgument, []string{"10000"}},
		"source that is gone": {func(q *request) {
			q.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
				Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: "gone"},
			}}
		}, codes.NotFound, []string{"gone"}},
	} {
		req := w.request("v")
		test.change(req)
		_, err := w.CreateVolume(w.ctx(), req)
		w.Log(name)
		w.expectError(err, test.code, test.words...)
	}
	w.nothingLeft()
}

func aDirectoryCannotBeABlockVolume(w *world) {
	req := w.request("v")
	req.VolumeCapabilities = []*csi.VolumeCapability{block(multiWriter)}
	_, err := w.CreateVolume(w.ctx(), req)
	w.expectError(err, codes.InvalidArgument, "Block", "image")
	w.nothingLeft()
}

func aPoolThatIsFullRefusesAndKeepsWhatItHas(w *world) {
	id := w.create("v", nil).GetVolumeId()
	room, err := w.GetCapacity(w.ctx(), &csi.GetCapacityRequest{})
	w.must(err)
	rest := room.GetMaximumVolumeSize().GetValue()
	w.create("rest", func(q *csi.CreateVolumeRequest) { q.CapacityRange.RequiredBytes = rest })
	_, err = w.CreateVolume(w.ctx(), w.request("more"))
	w.expectError(err, codes.ResourceExhausted, "fast", "536870912")
	_, err = w.ControllerExpandVolume(w.ctx(), &csi.ControllerExpandVolumeRequest{VolumeId: id, CapacityRange: &csi.CapacityRange{RequiredBytes: 2 * gib}})
	w.expectError(err, codes.OutOfRange, "fast")
	if room, err = w.GetCapacity(w.ctx(), &csi.GetCapacityRequest{}); err != nil || room.GetAvailableCapacity() >= 512*mib {
		w.Errorf("room is %v, %v", room, err)
	}
	w.remove("rest")
	w.remove(id)
	w.nothingLeft()
}

func aPoolThatIsReadOnlySaysSo(w *world) {
	id := w.create("v", nil).GetVolumeId()
	w.must(exec.Command("mount", "-o", "remount,ro", w.pool).Run())
	_, err := w.CreateVolume(w.ctx(), w.request("more"))
	w.expectError(err, codes.Unavailable, "fast", "read-only")
	_, err = w.DeleteVolume(w.ctx(), &csi.DeleteVolumeRequest{VolumeId: id})
	w.expectError(err, codes.Unavailable, "fast", "read-only")
	w.must(exec.Command("mount", "-o", "remount,rw", w.pool).Run())
	w.remove(id)
	w.nothingLeft()
}

func aPoolThatWasUnmountedBeneathTheProcessSaysSo(w *world) {
	w.create("v", nil)
	w.must(exec.Command("umount", "-l", w.pool).Run())
	_, err := w.CreateVolume(w.ctx(), w.request("more"))
	w.expectError(err, codes.Unavailable, "fast", w.pool)
	_, err = w.GetCapacity(w.ctx(), &csi.GetCapacityRequest{})
	w.expectError(err, codes.Unavailable, "fast", w.pool)
	if entries, err := os.ReadDir(w.pool); err != nil || len(entries) > 0 {
		w.Errorf("made below the mount point: %v, %v", entries, err)
	}
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

func TestPools_VolumeOfAnotherPoolIsRefused(t *testing.T) {
	slow := hostfs.New(t, hostfs.Ext4, 4*gib)
	w := newWorld(t, imageOnXFS, "")
	w.must(w.Stop())
	w.options.Pools = append(w.options.Pools, "name=slow,path="+slow)
	w.start()
	w.create("v", func(q *csi.CreateVolumeRequest) { q.Parameters["pool"] = "slow" })
	_, err := w.CreateVolume(w.ctx(), func() *csi.CreateVolumeRequest {
		q := w.request("v")
		q.Parameters["pool"] = "fast"
		return q
	}())
	w.expectError(err, codes.AlreadyExists, "slow", "fast")
	_, err = w.CreateVolume(w.ctx(), func() *csi.CreateVolumeRequest {
		q := w.request("clone")
		q.Parameters["pool"] = "fast"
		q.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
			Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: "v"},
		}}
		return q
	}())
	w.expectError(err, codes.InvalidArgument, "slow", "fast")
	w.remove("v")
	w.nothingLeft()
}
