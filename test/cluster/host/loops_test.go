package host

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

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
func TestLoops_BlockVolumeAndItsDeviceAreDetached(t *testing.T) {
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
	var devices []string
	for _, l := range loops {
		devices = append(devices, l.Device)
	}
	want := []string{volume, holder, inside}
	slices.Sort(want)
	slices.Sort(devices)
	if err != nil || !slices.Equal(devices, want) {
		t.Fatalf("loop devices %v, want %v, error %v", devices, want, err)
	}
	for range 2 { // the second finds nothing to do
		if err := DetachLoops(loops); err != nil {
			t.Fatal(err)
		}
		if err := UnmountBelow(dir); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range loops { // another process may have opened it
		if err := Until(t.Context(), time.Minute, func() error {
			if l.Attached() {
				return fmt.Errorf("%s is still attached", l.Device)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	if backing(stranger) == "" {
		t.Error("a stranger's device was detached")
	}
}

func TestLoops_DeviceReusedByAnotherIsNotDetached(t *testing.T) {
	needRoot(t)
	device := attach(t, disk(t, t.TempDir()))
	if err := DetachLoops([]Loop{{Device: device, File: "/before"}}); err != nil {
		t.Error(err)
	}
	if backing(device) == "" {
		t.Error("it was detached")
	}
}
