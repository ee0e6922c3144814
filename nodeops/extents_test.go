package nodeops

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// scattered writes that many blocks with a hole after each, so that each is an extent.
func scattered(t testing.TB, path string, blocks int64) *os.File {
	t.Helper()
	f := newFile(t, path)
	if err := f.Truncate(blocks * 8 * kib); err != nil { // otherwise xfs allocates beyond the end
		t.Fatal(err)
	}
	for i := range blocks {
		check.Got(f.WriteAt(bytes.Repeat([]byte{1}, int(4*kib)), i*8*kib))(t)
	}
	check.OK(t, f.Sync())
	return f
}

func TestExtents_AreUnsharedUntilAnotherFileHasThem(t *testing.T) {
	for _, fstype := range []string{"xfs", "btrfs"} {
		t.Run(fstype, func(t *testing.T) {
			dir := newFS(t, fstype, fileSystems[fstype])
			const blocks = 3 * extentsAtOnce
			src := scattered(t, filepath.Join(dir, "src"), blocks)
			expect := func(when string, want int64) {
				t.Helper()
				if got, err := Unshared(src); err != nil || got != want {
					t.Errorf("%s %d bytes are unshared, %v, want %d", when, got, err, want)
				}
			}
			expect("at first", blocks*4*kib)
			dst := newFile(t, filepath.Join(dir, "dst"))
			if shared, err := CopyFile(t.Context(), dst, src); err != nil || !shared {
				t.Fatalf("copied with shared blocks: %t, %v", shared, err)
			}
			expect("after a copy", 0)
			check.Got(src.WriteAt(bytes.Repeat([]byte{2}, int(4*kib)), 16*kib))(t)
			check.OK(t, src.Sync())
			expect("after a write to one of its blocks", 4*kib)
			check.OK(t, os.Remove(dst.Name()))
			dst.Close()
			late, tick := time.After(10*time.Second), time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for gone := int64(0); gone != blocks*4*kib; { // the kernel frees the blocks in the background
				command(t, "sync", "--file-system", dir)
				select {
				case <-late:
					expect("when the copy is gone", blocks*4*kib)
					return
				case <-tick.C:
				}
				var err error
				if gone, err = Unshared(src); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestExtents_EmptyFileHasNoneAndUnsupportedFileSystemIsAnError(t *testing.T) {
	if got, err := Unshared(newFile(t, filepath.Join(newFS(t, "ext4", fileSystems["ext4"]), "empty"))); err != nil || got != 0 {
		t.Errorf("an empty file has %d bytes, %v", got, err)
	}
	proc := check.Got(os.Open("/proc/self/status"))(t)
	defer proc.Close()
	if got, err := Unshared(proc); err == nil {
		t.Errorf("of /proc it says %d", got)
	}
}
