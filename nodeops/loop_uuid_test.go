package nodeops

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestRenewUUID_CopyHoldsTheDataOfItsSource(t *testing.T) {
	requireRoot(t)
	for _, c := range []struct {
		name, fstype string
		options      []string
	}{
		{"ext4", "ext4", nil},
		{"ext4 without checksums of metadata", "ext4", []string{"-O", "^metadata_csum"}},
		{"ext4 with a seed already", "ext4", []string{"-O", "metadata_csum,metadata_csum_seed"}},
		{"xfs", "xfs", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			image := newImage(t, c.fstype, fileSystems[c.fstype], c.options...)
			source := mountImage(t, image)
			check.OK(t, os.WriteFile(filepath.Join(source, "file"), []byte("kept"), 0o600))
			// As for one that was made long ago: the last check is older than the last mount.
			frozen := check.Got(Freeze(t.Context(), source, time.Minute))(t)
			copied := image + ".copy"
			command(t, "cp", "--sparse=always", image, copied)
			check.OK(t, frozen.Thaw())
			if c.fstype == "ext4" {
				command(t, "tune2fs", "-T", "20010101", copied)
			}
			l := attach(t, copied, LoopOptions{})
			target := t.TempDir()
			replayLog(t, l.Path, target, c.fstype)
			check.OK(t, RenewUUID(t.Context(), l.Path, c.fstype))
			at := uuidAt[c.fstype]
			a, errA := uuidOf(image, at)
			b, errB := uuidOf(l.Path, at)
			if errA != nil || errB != nil || a == b || b == [16]byte{} {
				t.Errorf("their UUIDs are %x and %x, %v, %v", a, b, errA, errB)
			}
			// MountFS would mount two file systems with the same UUID.
			check.OK(t, unix.Mount(l.Path, target, c.fstype, 0, ""))
			t.Cleanup(func() { unmountAll(t, target) })
			if got := read(t, filepath.Join(target, "file")); got != "kept" {
				t.Errorf("the copy holds %q", got)
			}
			unmountAll(t, target)
			if out := dump(t, c.fstype, l.Path); c.name == "ext4" && !strings.Contains(out, "metadata_csum_seed") {
				t.Errorf("all its checksums were rewritten: %s", out) // which takes long on a large file system
			}
			fsck := map[string][]string{"ext4": {"e2fsck", "-f", "-n", l.Path}, "xfs": {"xfs_repair", "-n", l.Path}}[c.fstype]
			command(t, fsck[0], fsck[1:]...)
		})
	}
}

func dump(t *testing.T, fstype, device string) string {
	t.Helper()
	if fstype != "ext4" {
		return ""
	}
	return command(t, "dumpe2fs", "-h", device)
}

// replayLog replays the log of a file system by a mount.
func replayLog(t *testing.T, device, target, fstype string) {
	t.Helper()
	check.OK(t, MountFS(t.Context(), device, target, fstype, nil))
	check.OK(t, Unmount(t.Context(), target))
}

func TestRenewUUID_LogOfACopyIsNotDiscarded(t *testing.T) {
	image := newImage(t, "xfs", fileSystems["xfs"])
	source := mountImage(t, image)
	check.OK(t, os.WriteFile(filepath.Join(source, "file"), []byte("kept"), 0o600))
	frozen := check.Got(Freeze(t.Context(), source, time.Minute))(t)
	copied := image + ".copy"
	command(t, "cp", "--sparse=always", image, copied)
	check.OK(t, frozen.Thaw())
	l := attach(t, copied, LoopOptions{})
	if err := RenewUUID(t.Context(), l.Path, "xfs"); err == nil {
		t.Error("its log was thrown away")
	}
	replayLog(t, l.Path, t.TempDir(), "xfs")
	check.Report(t, RenewUUID(t.Context(), l.Path, "xfs"))
}

func TestRenewUUID_FailureIsAnError(t *testing.T) {
	for _, fstype := range []string{"ext4", "xfs"} {
		l := attach(t, sparse(t, t.TempDir(), 16*mib), LoopOptions{})
		if err := RenewUUID(t.Context(), l.Path, fstype); err == nil {
			t.Errorf("%s: nothing is on it, and that was no error", fstype)
		}
	}
}
