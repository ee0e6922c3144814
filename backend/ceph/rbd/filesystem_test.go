//go:build ceph

package rbd

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/ceph"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

var fscks = map[string][]string{"ext4": {"e2fsck", "-f", "-n"}, "xfs": {"xfs_repair", "-n"}, "btrfs": {"btrfs", "check"}}

// hasFileSystem fails unless the file system of a volume is whole.
func hasFileSystem(t *testing.T, at ceph.Config, v *backend.Volume) {
	t.Helper()
	image, fsck := filepath.Join(t.TempDir(), "image"), fscks[v.FSType]
	check.OK(t, os.WriteFile(image, read(t, at, v, int(v.Size)), 0o600))
	if out, err := exec.CommandContext(t.Context(), fsck[0], append(fsck[1:], image)...).CombinedOutput(); err != nil {
		t.Errorf("%s of %d bytes: %v: %s", v.FSType, v.Size, err, out)
	}
}

func TestCreate_VolumeHasItsFileSystem(t *testing.T) {
	at, b, _ := openWith(t, Config{})
	for fsType := range fscks {
		hasFileSystem(t, at, check.Got(b.Create(t.Context(), backend.VolumeSpec{Name: fsType, FSType: fsType, Size: backend.Size{Required: size}}))(t))
	}
	v := check.Got(b.Create(t.Context(), backend.VolumeSpec{Name: "few", Inodes: 1000, MkfsOptions: []string{"-L", "label"}, Size: backend.Size{Required: size}}))(t)
	if !bytes.Contains(read(t, at, v, mib), []byte("label")) {
		t.Error("its options are lost")
	}
}

func TestCreate_CopyHasTheFileSystemOfItsSourceWhateverTheOptions(t *testing.T) {
	_, b, _ := openWith(t, Config{})
	check.Got(b.Create(t.Context(), backend.VolumeSpec{Name: "v", FSType: "xfs", Size: backend.Size{Required: size}}))(t)
	c, err := b.Clone(t.Context(), "v", backend.VolumeSpec{Name: "c", MkfsOptions: []string{"-O", "^has_journal"}, Inodes: 1000}) // of a class for ext4
	if err != nil || c.FSType != "xfs" {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestCreate_FileSystemThatCannotBeMadeIsRefusedAndLeavesNothing(t *testing.T) {
	at, b, end := openWith(t, Config{})
	for name, test := range map[string]struct {
		spec backend.VolumeSpec
		want error
	}{
		"an option that does not exist":    {backend.VolumeSpec{MkfsOptions: []string{"--no-such-option"}}, backend.ErrInvalid},
		"an option that the size refuses":  {backend.VolumeSpec{FSType: "xfs", MkfsOptions: []string{"-l", "size=3g"}}, backend.ErrInvalid},
		"a limit below the smallest":       {backend.VolumeSpec{FSType: "xfs", Size: backend.Size{Required: size, Limit: 2 * size}}, backend.ErrOutOfRange},
		"inodes of what does not have any": {backend.VolumeSpec{FSType: "btrfs", Inodes: 1000}, backend.ErrInvalid},
		"more than any memory could hold":  {backend.VolumeSpec{Size: backend.Size{Required: 1 << 60}}, backend.ErrExhausted},
	} {
		test.spec.Name = "v"
		if _, err := b.Create(t.Context(), test.spec); !errors.Is(err, test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	end()
	checkLeft(t, at, operation{})
}
