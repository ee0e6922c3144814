package nodeops

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

// requireGrowth skips the test if the kernel would refuse to grow a mounted ext4.
func requireGrowth(t testing.TB, fstype string) {
	t.Helper()
	if fstype == "ext4" && !maySysResource(t) {
		hostfs.Skip(t, "ext4-growth", "this process lacks CAP_SYS_RESOURCE, without which the kernel grows no mounted ext4")
	}
}

func maySysResource(t testing.TB) bool {
	t.Helper()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	check.OK(t, unix.Capget(&header, &data[0]))
	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}

func growImage(t testing.TB, image, device string, size int64) {
	t.Helper()
	check.OK(t, os.Truncate(image, size))
	check.OK(t, GrowLoop(device))
}

func TestResize_MountedFileSystemGrowsWithItsDevice(t *testing.T) {
	requireRoot(t)
	for fstype, size := range fileSystems {
		t.Run(fstype, func(t *testing.T) {
			requireGrowth(t, fstype)
			image := remake(t, size, MkfsSpec{FSType: fstype})
			dir, device := mountLoop(t, image, fstype)
			file := write(t, filepath.Join(dir, "file"), "content")
			t.Setenv("PATH", "") // no command is needed
			for _, times := range []int64{1, 4, 4, 64} {
				growImage(t, image, device, times*size)
				check.OK(t, GrowFS(t.Context(), device, dir))
				usage, err := Statfs(t.Context(), dir)
				if err != nil || usage.Total < times*size*3/4 {
					t.Errorf("the device has %d bytes, the file system %d (%v)", times*size, usage.Total, err)
				}
			}
			if got := read(t, file); got != "content" {
				t.Errorf("the file holds %q", got)
			}
		})
	}
}

func TestGrow_WithoutPermissionNamesTheMissingCapability(t *testing.T) {
	requireRoot(t)
	image := remake(t, 64*mib, MkfsSpec{FSType: "ext4"})
	dir, device := mountLoop(t, image, "ext4")
	runtime.LockOSThread() // the thread ends with the test
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	check.OK(t, unix.Capget(&header, &data[0]))
	data[0].Effective &^= 1 << unix.CAP_SYS_RESOURCE
	check.OK(t, unix.Capset(&header, &data[0]))
	if err := GrowFS(t.Context(), device, dir); err != nil {
		t.Errorf("nothing to grow: %v", err)
	}
	growImage(t, image, device, 128*mib)
	if err := GrowFS(t.Context(), device, dir); !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "CAP_SYS_RESOURCE") {
		t.Errorf("got %v, want EPERM that names the capability", err)
	}
}

func TestResize_ReadOnlyOrUnmountedFileSystemDoesNotGrow(t *testing.T) {
	image := newImage(t, "xfs", fileSystems["xfs"])
	dir, device := mountLoop(t, image, "xfs", "ro")
	before := check.Got(Statfs(t.Context(), dir))(t)
	growImage(t, image, device, 640*mib)
	check.Report(t, GrowFS(t.Context(), device, dir))
	if after, err := Statfs(t.Context(), dir); err != nil || after.Total != before.Total {
		t.Errorf("got %+v, %v, want %+v", after, err, before)
	}
	unmountAll(t, dir)
	if err := GrowFS(t.Context(), device, dir); err == nil || !strings.Contains(err.Error(), "nothing is mounted") {
		t.Errorf("got %v, want an error that says nothing is mounted", err)
	}
}
