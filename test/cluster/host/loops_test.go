package host

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func attach(t *testing.T, file string) string {
	t.Helper()
	device, err := Run(t.Context(), "losetup", "--find", "--show", file)
	if err != nil {
		t.Fatal(err)
	}
	device = strings.TrimSpace(device)
	t.Cleanup(func() { _, _ = Run(context.Background(), "losetup", "--detach", device) })
	return device
}

func disk(t *testing.T, dir string) string {
	t.Helper()
	file := filepath.Join(dir, "disk")
	if err := os.WriteFile(file, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// The kubelet puts a loop device of its own on top of a block volume, to hold it.
func TestABlockVolumeAndTheDeviceThatHoldsItAreDetached(t *testing.T) {
	needRoot(t)
	dir, pool := t.TempDir(), t.TempDir()
	t.Cleanup(func() { _ = UnmountBelow(dir) })
	volume := attach(t, disk(t, pool))
	stranger := attach(t, disk(t, t.TempDir()))
	given := filepath.Join(dir, "device")
	if err := os.WriteFile(given, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(volume, given, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	holder := attach(t, given)
	inside := attach(t, disk(t, dir))

	loops, err := Loops(dir)
	want := []string{volume, holder, inside}
	slices.Sort(want)
	if err != nil || !slices.Equal(loops, want) {
		t.Fatalf("loop devices %v, want %v, error %v", loops, want, err)
	}
	for range 2 { // the second finds nothing to do
		if err := DetachLoops(loops); err != nil {
			t.Fatal(err)
		}
		if err := UnmountBelow(dir); err != nil {
			t.Fatal(err)
		}
	}
	for _, device := range want {
		if attached(device) {
			t.Errorf("%s is still attached", device)
		}
	}
	if !attached(stranger) {
		t.Error("a stranger's device was detached")
	}
}

func attached(device string) bool {
	_, err := os.Stat(filepath.Join("/sys/block", filepath.Base(device), "loop/backing_file"))
	return err == nil
}
