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

// The file system is written without librbd, which reads it, and removes it by the object map.
func TestCreate_FileSystemIsWhereCephLooksForIt(t *testing.T) {
	for name, config := range map[string][][2]string{
		"by default":            nil,
		"in small objects":      {{"rbd_default_order", "16"}},
		"in objects of a block": {{"rbd_default_order", "12"}},
		"in stripes":            {{"rbd_default_stripe_unit", "65536"}, {"rbd_default_stripe_count", "2"}},
		"in another pool":       nil,
	} {
		t.Run(name, func(t *testing.T) {
			at := newPool(t, 0)
			data := at
			if name == "in another pool" {
				data = newPool(t, 0)
				at.DataPool, at.Namespace = data.Pool, namespace(t, at, "team")
				data.Namespace = at.Namespace
				check.Got(small.Command(t.Context(), "ceph", "auth", "caps", "client."+at.User, "mon", "profile rbd", "osd", "profile rbd pool="+at.Pool+", profile rbd pool="+data.Pool))(t)
			}
			for _, c := range config {
				check.Got(small.Command(t.Context(), "rbd", "config", "pool", "set", at.Pool, c[0], c[1]))(t)
			}
			b, _ := open(t, at, Config{TrashRetention: backend.NoTrash})
			v := check.Got(b.Create(t.Context(), backend.VolumeSpec{Name: "a", Size: backend.Size{Required: size}}))(t)
			hasFileSystem(t, at, v)
			r, err := b.find(t.Context(), volumes, "a")
			check.OK(t, err)
			used(t, b, "a", int64(objectsIn(t, data))<<r.header.number("order"))
			check.OK(t, b.Delete(t.Context(), "a"))
			if n := objectsIn(t, data); n > 0 {
				t.Errorf("%d objects are left", n)
			}
		})
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
