package nodeops

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestGrowUnmounted_Ext4GrowsToItsDeviceWithoutACapability(t *testing.T) {
	requireRoot(t)
	image := remake(t, 64*mib, MkfsSpec{FSType: "ext4"})
	device, dir := attach(t, image, LoopOptions{}).Path, t.TempDir()
	t.Cleanup(func() { unmountAll(t, dir) })
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
	if got := read(t, filepath.Join(dir, "file")); got != "content" {
		t.Errorf("the file holds %q", got)
	}
}

// A process that is being started beside it holds the device like this.
func TestGrowUnmounted_DeviceThatIsOpenForAMomentGrows(t *testing.T) {
	requireRoot(t)
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
	if err := GrowUnmounted(t.Context(), image, "ext4"); !errors.Is(err, ErrDamaged) {
		t.Errorf("got %v", err)
	}
	if _, err := Ext4Size(image); !errors.Is(err, ErrDamaged) {
		t.Errorf("got %v", err)
	}
}
