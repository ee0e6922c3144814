package nodeops

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestGrowUnmounted_Ext4GrowsToItsDeviceWithoutACapability(t *testing.T) {
	requireRoot(t)
	image := remake(t, 64*mib, MkfsSpec{FSType: "ext4"})
	device, dir := attach(t, image, LoopOptions{}).Path, t.TempDir()
	t.Cleanup(func() { unmountAll(t, dir) })
	if err := MountFS(t.Context(), device, dir, "ext4", nil); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "file"), "content")
	if err := Unmount(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
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
	if err := MountFS(t.Context(), device, dir, "ext4", nil); err != nil {
		t.Fatal(err)
	}
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
	f, err := os.OpenFile(device, os.O_RDONLY|unix.O_EXCL, 0)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(useGrace/4, func() { f.Close() })
	if err := GrowUnmounted(t.Context(), device, "ext4"); err != nil {
		t.Fatal(err)
	}
	if has, err := Ext4Size(device); err != nil || has != 128*mib {
		t.Errorf("it has %d MiB (%v)", has/mib, err)
	}
}

func TestGrowUnmounted_OtherFileSystemDoesNotGrow(t *testing.T) {
	image := filepath.Join(t.TempDir(), "image")
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, mib)); err != nil {
		t.Fatal(err)
	}
	if err := GrowUnmounted(t.Context(), image, "xfs"); err != nil {
		t.Error(err)
	}
	if err := GrowUnmounted(t.Context(), image, "ext4"); !errors.Is(err, ErrDamaged) {
		t.Errorf("got %v", err)
	}
	if _, err := Ext4Size(image); !errors.Is(err, ErrDamaged) {
		t.Errorf("got %v", err)
	}
}
