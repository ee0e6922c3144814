package nodeops

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// debugfs modifies an ext4 that is not mounted.
func debugfs(t testing.TB, image, request string) {
	t.Helper()
	command(t, "debugfs", "-w", "-R", request, image)
}

// headOf reads the superblock of an ext4.
func headOf(t testing.TB, image string) *ext4Head {
	t.Helper()
	f := check.Got(os.Open(image))(t)
	defer f.Close()
	return check.Got(readExt4Head(f))(t)
}

// withFile makes an ext4 with a file in it.
func withFile(t testing.TB) (image string) {
	t.Helper()
	image = remake(t, 64*mib, MkfsSpec{FSType: "ext4"})
	dir := mountImage(t, image)
	write(t, filepath.Join(dir, "file"), "content")
	unmountAll(t, dir)
	return image
}

func isClean(t testing.TB, device string) {
	t.Helper()
	if now := headOf(t, device); now.marked || now.unclean {
		t.Errorf("it is %+v", now)
	}
}

// holdsFile fails if the file system, ready to be mounted, does not have its file.
func holdsFile(t testing.TB, device string) {
	t.Helper()
	dir := newTarget(t)
	check.OK(t, MountFS(t.Context(), device, dir, "ext4", nil))
	holds(t, filepath.Join(dir, "file"), "content")
}

// noCommands makes PATH empty.
func noCommands(t *testing.T) {
	t.Helper()
	t.Setenv("PATH", t.TempDir())
}

func TestPreen_Ext4MarkedWithErrorsIsRepairedOnce(t *testing.T) {
	for _, state := range []int{0, 2, 3} { // not unmounted, errors, both
		t.Run(fmt.Sprint(state), func(t *testing.T) {
			requireRoot(t)
			image := withFile(t)
			debugfs(t, image, fmt.Sprint("set_super_value state ", state))
			device := attach(t, image, LoopOptions{}).Path
			check.OK(t, Preen(t.Context(), device, "ext4"))
			isClean(t, device)
			path := os.Getenv("PATH")
			noCommands(t)
			check.Report(t, Preen(t.Context(), device, "ext4")) // a clean one
			t.Setenv("PATH", path)
			holdsFile(t, device)
		})
	}
}

func TestPreen_Ext4ThatWasNotUnmountedHasItsJournalReplayed(t *testing.T) {
	image := remake(t, 64*mib, MkfsSpec{FSType: "ext4"})
	dir := mountImage(t, image)
	write(t, filepath.Join(dir, "file"), "content")
	command(t, "sync", "-f", dir)
	cut := filepath.Join(t.TempDir(), "cut")
	command(t, "cp", "--sparse=always", image, cut) // as after a power cut
	device := attach(t, cut, LoopOptions{}).Path
	check.Same(t, headOf(t, device).unclean, true)
	check.OK(t, Preen(t.Context(), device, "ext4"))
	isClean(t, device)
	holdsFile(t, device)
}

func TestPreen_Ext4ThatNeedsALossyRepairIsRefusedWithTheRemedy(t *testing.T) {
	image := withFile(t)
	debugfs(t, image, "clri <2>")
	debugfs(t, image, "set_super_value state 2")
	device := attach(t, image, LoopOptions{}).Path
	for range 2 {
		err := Preen(t.Context(), device, "ext4")
		check.Fails(t, err, ErrDamaged, "marked as having errors", "copy "+image, "e2fsck -f "+image, "losing files", "snapshot")
		if strings.Contains(fmt.Sprint(err), "\n") {
			t.Errorf("more than one line: %v", err)
		}
	}
}

func TestPreen_FollowsTheExitCodeOfE2fsck(t *testing.T) {
	image := withFile(t)
	debugfs(t, image, "set_super_value state 2")
	device := attach(t, image, LoopOptions{}).Path
	for code, fine := range map[int]bool{0: true, 1: true, 2: true, 3: true, 4: false, 8: false, 9: false, 12: false, 128: false} {
		bin := t.TempDir()
		check.OK(t, os.WriteFile(filepath.Join(bin, "e2fsck"), fmt.Appendf(nil, "#!/bin/sh\nexit %d\n", code), 0o700))
		t.Setenv("PATH", bin)
		if err := Preen(t.Context(), device, "ext4"); fine != (err == nil) || !fine && !errors.Is(err, ErrDamaged) {
			t.Errorf("code %d: %v", code, err)
		}
	}
	noCommands(t)
	check.Fails(t, Preen(t.Context(), device, "ext4"), exec.ErrNotFound) // without e2fsck
}

func TestPreen_OtherFileSystemIsLeftAlone(t *testing.T) {
	image := withFile(t)
	debugfs(t, image, "set_super_value state 2")
	_, device := mountLoop(t, image, "ext4")
	empty := attach(t, sparse(t, t.TempDir(), 16*mib), LoopOptions{Autoclear: true}).Path
	noCommands(t)
	for device, fstype := range map[string]string{device: "ext4", empty: "ext4", "/dev/null": "xfs"} {
		if err := Preen(t.Context(), device, fstype); err != nil {
			t.Errorf("%s: %v", device, err)
		}
	}
}
