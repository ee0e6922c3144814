package local

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

var volumeMetrics = []string{"holdfast_volume_reads_total", "holdfast_volume_read_bytes_total", "holdfast_volume_writes_total", "holdfast_volume_written_bytes_total"}

// volumeText is a metric of volume a in the exposition format.
func volumeText(name, help string, n int) string {
	name = "holdfast_volume_" + name
	return fmt.Sprintf("# HELP %s %s, of an image that is in use here, by the counters of its loop device. What the page cache answers is not counted.\n# TYPE %s counter\n%s{pool=\"pool\",volume=\"a\"} %d\n", name, help, name, name, n)
}

func TestTraffic_OfABlockVolumeIsCountedToTheByteWhileItIsInUse(t *testing.T) {
	hostfs.RequireRoot(t)
	b := served(t, PoolConfig{Name: "pool", Engine: "image", Path: hostfs.New(t, hostfs.XFS, 512*mib), Reserved: "0"})
	v := made(t, b, block("a"))
	made(t, b, block("unused"))
	registry := prometheus.NewRegistry()
	registry.MustRegister(b.Collector())
	count := func() int {
		t.Helper()
		return check.Got(testutil.GatherAndCount(registry, volumeMetrics...))(t)
	}
	if n := count(); n != 0 {
		t.Errorf("%d metrics of volumes that are not in use", n)
	}
	loop := check.Got(nodeops.AttachLoop(t.Context(), v.Access.Image, nodeops.LoopOptions{Autoclear: true}))(t)
	defer loop.Close()
	device := check.Got(os.OpenFile(loop.Path, os.O_WRONLY|unix.O_DIRECT, 0))(t)
	defer device.Close()                                                                                  // udev, which waits for the last writer to close
	page, err := unix.Mmap(-1, 0, 64<<10, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON) // aligned, as direct I/O requires
	check.OK(t, err)
	defer func() { _ = unix.Munmap(page) }()
	for i := range 3 {
		check.Got(device.WriteAt(page, int64(i)*64<<10))(t)
	}
	want := volumeText("written_bytes_total", "Bytes written to the volume", 3*64<<10) + volumeText("writes_total", "Writes to the volume that the kernel has completed", 3)
	check.Report(t, testutil.CollectAndCompare(b.Collector(), strings.NewReader(want), "holdfast_volume_written_bytes_total", "holdfast_volume_writes_total"))
	all := b.Traffic(t.Context())
	if len(all) != 1 || all[0].ID != v.ID || all[0].Pool != "pool" || all[0].Writes != 3 || all[0].WrittenBytes != 3*64<<10 {
		t.Errorf("it is %+v", all)
	}
	if n := count(); n != len(volumeMetrics) {
		t.Errorf("%d metrics of one volume in use", n)
	}
}

func TestTraffic_OfADirectoryIsNotKnown(t *testing.T) {
	hostfs.RequireRoot(t)
	b := served(t, PoolConfig{Name: "pool", Engine: "directory", Path: hostfs.New(t, hostfs.XFSQuota, 512*mib), Reserved: "0"})
	made(t, b, backend.VolumeSpec{Name: "a", Mode: backend.Filesystem, Size: backend.Size{Required: 64 * mib}})
	if all := b.Traffic(t.Context()); len(all) != 0 {
		t.Errorf("it is %+v", all)
	}
}
