package nodeops

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

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
	eachFS(t, func(t *testing.T, fstype string, size int64) {
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
		holds(t, file, "content")
	})
}

func TestGrow_WithoutPermissionNamesTheMissingCapability(t *testing.T) {
	image := remake(t, 64*mib, MkfsSpec{FSType: "ext4"})
	dir, device := mountLoop(t, image, "ext4")
	runtime.LockOSThread() // the thread ends with the test
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	check.OK(t, unix.Capget(&header, &data[0]))
	data[0].Effective &^= 1 << unix.CAP_SYS_RESOURCE
	check.OK(t, unix.Capset(&header, &data[0]))
	check.Report(t, GrowFS(t.Context(), device, dir)) // nothing to grow
	growImage(t, image, device, 128*mib)
	check.Fails(t, GrowFS(t.Context(), device, dir), unix.EPERM, "CAP_SYS_RESOURCE")
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
	check.Fails(t, GrowFS(t.Context(), device, dir), nil, "nothing is mounted")
}

func TestGrowUnmounted_Ext4GrowsToItsDeviceWithoutACapability(t *testing.T) {
	image := remake(t, 64*mib, MkfsSpec{FSType: "ext4"})
	device, dir := attach(t, image, LoopOptions{}).Path, newTarget(t)
	check.OK(t, MountFS(t.Context(), device, dir, "ext4", nil))
	write(t, filepath.Join(dir, "file"), "content")
	check.OK(t, Unmount(t.Context(), dir))
	path := os.Getenv("PATH")
	for _, size := range []int64{64, 65, 128, 129, 130, 131, 200, 257, 1024} {
		growImage(t, image, device, size*mib)
		for range 2 { // the second time runs no program
			if err := GrowUnmounted(t.Context(), device, "ext4"); err != nil {
				t.Fatalf("%d MiB: %v", size, err)
			}
			t.Setenv("PATH", t.TempDir())
		}
		t.Setenv("PATH", path)
		if has, err := Ext4Size(device); err != nil || has > size*mib || has < size*mib*95/100 {
			t.Errorf("of %d MiB the file system takes %d (%v)", size, has/mib, err)
		}
	}
	check.OK(t, MountFS(t.Context(), device, dir, "ext4", nil))
	holds(t, filepath.Join(dir, "file"), "content")
}

// A process that is being started beside it holds the device like this.
func TestGrowUnmounted_DeviceThatIsOpenForAMomentGrows(t *testing.T) {
	image := remake(t, 64*mib, MkfsSpec{FSType: "ext4"})
	device := attach(t, image, LoopOptions{}).Path
	growImage(t, image, device, 128*mib)
	f := check.Got(os.OpenFile(device, os.O_RDONLY|unix.O_EXCL, 0))(t)
	time.AfterFunc(useGrace/4, func() { f.Close() })
	check.OK(t, GrowUnmounted(t.Context(), device, "ext4"))
	if has, err := Ext4Size(device); err != nil || has != 128*mib {
		t.Errorf("it has %d MiB (%v)", has/mib, err)
	}
}

func TestGrowUnmounted_OtherFileSystemDoesNotGrow(t *testing.T) {
	image := filepath.Join(t.TempDir(), "image")
	check.OK(t, errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, mib)))
	check.Report(t, GrowUnmounted(t.Context(), image, "xfs"))
	check.Fails(t, GrowUnmounted(t.Context(), image, "ext4"), ErrDamaged)
	check.Fails(t, check.ErrorOf(Ext4Size(image)), ErrDamaged)
}
