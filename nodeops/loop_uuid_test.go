package nodeops

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestRenewUUID_CopyHoldsTheDataOfItsSourceAndItsLog(t *testing.T) {
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
			target := newTarget(t)
			if c.fstype == "xfs" {
				check.Fails(t, RenewUUID(t.Context(), l.Path, "xfs"), nil) // it throws no log away
			}
			check.OK(t, errors.Join(MountFS(t.Context(), l.Path, target, c.fstype, nil), Unmount(t.Context(), target))) // replays the log
			check.OK(t, RenewUUID(t.Context(), l.Path, c.fstype))
			at := uuidAt[c.fstype]
			a, errA := uuidOf(image, at)
			b, errB := uuidOf(l.Path, at)
			if errA != nil || errB != nil || a == b || b == [16]byte{} {
				t.Errorf("their UUIDs are %x and %x, %v, %v", a, b, errA, errB)
			}
			// MountFS would mount two file systems with the same UUID.
			check.OK(t, unix.Mount(l.Path, target, c.fstype, 0, ""))
			holds(t, filepath.Join(target, "file"), "kept")
			unmountAll(t, target)
			if c.name == "ext4" && !strings.Contains(command(t, "dumpe2fs", "-h", l.Path), "metadata_csum_seed") {
				t.Error("all its checksums were rewritten") // which takes long on a large file system
			}
			fsck := map[string][]string{"ext4": {"e2fsck", "-f", "-n", l.Path}, "xfs": {"xfs_repair", "-n", l.Path}}[c.fstype]
			command(t, fsck[0], fsck[1:]...)
		})
	}
}

func TestRenewUUID_FailureIsAnError(t *testing.T) {
	for _, fstype := range []string{"ext4", "xfs"} {
		l := attach(t, sparse(t, t.TempDir(), 16*mib), LoopOptions{})
		if err := RenewUUID(t.Context(), l.Path, fstype); err == nil {
			t.Errorf("%s: nothing is on it, and that was no error", fstype)
		}
	}
}
