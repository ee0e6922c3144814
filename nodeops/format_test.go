package nodeops

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// blank is a block device of zeros.
func blank(t *testing.T, size int64) (device, image string) {
	t.Helper()
	requireRoot(t)
	image = filepath.Join(t.TempDir(), "image")
	newSparse(t, image, size)
	l, err := AttachLoop(t.Context(), image, LoopOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Detach(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return l.Path, image
}

const formatUUID = "01234567-89ab-8def-8123-456789abcdef"

func specOf(fstype string) MkfsSpec {
	spec := MkfsSpec{FSType: fstype}
	if fstype == "xfs" {
		spec.UUID = formatUUID
	}
	return spec
}

func TestFormatOnce_MakesAFileSystemOnceThatCanBeMounted(t *testing.T) {
	for fstype, size := range fileSystems {
		t.Run(fstype, func(t *testing.T) {
			device, _ := blank(t, size)
			if made, err := FormatOnce(t.Context(), device, specOf(fstype)); err != nil || !made {
				t.Fatalf("made %t, %v", made, err)
			}
			if made, err := FormatOnce(t.Context(), device, specOf(fstype)); err != nil || made {
				t.Errorf("made again %t, %v", made, err)
			}
			target := t.TempDir()
			if err := MountFS(t.Context(), device, target, fstype, nil); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { unmountAll(t, target) })
			write(t, filepath.Join(target, "file"), "holdfast")
			unmountAll(t, target)
			if made, err := FormatOnce(t.Context(), device, specOf(fstype)); err != nil || made {
				t.Errorf("made again %t, %v", made, err)
			}
			check := map[string][]string{"ext4": {"e2fsck", "-f", "-n"}, "xfs": {"xfs_repair", "-n"}, "btrfs": {"btrfs", "check"}}[fstype]
			command(t, check[0], append(check[1:], device)...)
		})
	}
}

func TestFormatOnce_LeavesWhatIsThere(t *testing.T) {
	device, image := blank(t, 64*mib)
	for name, at := range map[string]int64{"the beginning": 4096, "the end": 64*mib - 8192} {
		put := func(b []byte) {
			f, err := os.OpenFile(device, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.WriteAt(b, at); err != nil || f.Sync() != nil {
				t.Fatal(err)
			}
		}
		put([]byte("data"))
		before := checksum(t, image)
		if made, err := FormatOnce(t.Context(), device, specOf("ext4")); !errors.Is(err, ErrNotEmpty) || made || checksum(t, image) != before {
			t.Errorf("with data at %s: made %t, %v", name, made, err)
		}
		put(make([]byte, 4))
	}
}

func TestFormatOnce_OneThatWasKilledIsBegunAnew(t *testing.T) {
	for _, fstype := range []string{"ext4", "btrfs"} {
		t.Run(fstype, func(t *testing.T) {
			device, _ := blank(t, fileSystems[fstype])
			if _, err := FormatOnce(t.Context(), device, specOf(fstype)); err != nil {
				t.Fatal(err)
			}
			// Everything except what is written last.
			f, err := os.OpenFile(device, os.O_RDWR|unix.O_SYNC, 0)
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.WriteAt(make([]byte, edge), 0)
			if err := errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
			if made, err := FormatOnce(t.Context(), device, specOf(fstype)); err != nil || !made {
				t.Errorf("made %t, %v", made, err)
			}
		})
	}
	device, _ := blank(t, fileSystems["xfs"])
	if _, err := FormatOnce(t.Context(), device, specOf("xfs")); err != nil {
		t.Fatal(err)
	}
	const inProgress = 126
	f, err := os.OpenFile(device, os.O_RDWR|unix.O_SYNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte{1}, inProgress)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	other := specOf("xfs")
	other.UUID = "11234567-89ab-8def-8123-456789abcdef"
	if made, err := FormatOnce(t.Context(), device, other); err != nil || made {
		t.Errorf("another's unfinished xfs: made %t, %v", made, err)
	}
	if made, err := FormatOnce(t.Context(), device, specOf("xfs")); err != nil || !made {
		t.Errorf("its own unfinished xfs: made %t, %v", made, err)
	}
}
