package nodeops

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// holey makes a file with data at its start, in its middle, and before a hole at its end.
func holey(t testing.TB, path string, size int64) *os.File {
	t.Helper()
	newSparse(t, path, size)
	f := check.Got(os.OpenFile(path, os.O_RDWR, 0))(t)
	t.Cleanup(func() { f.Close() })
	data := bytes.Repeat([]byte("holdfast"), 1<<14)
	for _, at := range []int64{0, size / 2, size*3/4 + 1} {
		check.Got(f.WriteAt(data, at))(t)
	}
	return f
}

func newFile(t testing.TB, path string) *os.File {
	t.Helper()
	f := check.Got(os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600))(t)
	t.Cleanup(func() { f.Close() })
	return f
}

func TestCopy_HasTheContentAndHolesOfItsSource(t *testing.T) {
	eachFS(t, func(t *testing.T, fstype string, size int64) {
		dir := newFS(t, fstype, size)
		src := holey(t, filepath.Join(dir, "src"), 10*gib)
		for name, copyTo := range map[string]func(dst *os.File) error{
			"CopyFile": func(dst *os.File) error {
				reflinked, err := CopyFile(t.Context(), dst, src)
				check.Same(t, reflinked, fstype != "ext4")
				return err
			},
			"CopySparse": func(dst *os.File) error { return CopySparse(t.Context(), dst, src) },
		} {
			dst := newFile(t, filepath.Join(dir, name))
			check.OK(t, copyTo(dst))
			check.OK(t, dst.Sync())
			sameContent(t, dst, src)
			if got, most := allocated(t, dst.Name()), allocated(t, src.Name())+mib; got > most {
				t.Errorf("%s: the copy takes %d bytes, want at most %d", name, got, most)
			}
			check.Got(src.WriteAt([]byte(name), 0))(t)
			start := make([]byte, len(name))
			check.Got(dst.ReadAt(start, 0))(t)
			if string(start) == name {
				t.Errorf("%s: the copy changes with its source", name)
			}
		}
	})
}

// sameContent compares two files without reading gigabytes of holes.
func sameContent(t testing.TB, a, b *os.File) {
	t.Helper()
	infoA, errA := a.Stat()
	infoB, errB := b.Stat()
	check.OK(t, errors.Join(errA, errB))
	if infoA.Size() != infoB.Size() {
		t.Fatalf("%s has %d bytes, %s %d", a.Name(), infoA.Size(), b.Name(), infoB.Size())
	}
	for _, side := range [][2]*os.File{{a, b}, {b, a}} {
		check.OK(t, eachData(side[0], infoA.Size(), func(from, to int64) error {
			one, other := make([]byte, to-from), make([]byte, to-from)
			_, err1 := side[0].ReadAt(one, from)
			_, err2 := side[1].ReadAt(other, from)
			if !bytes.Equal(one, other) {
				t.Errorf("%s and %s differ between %d and %d", a.Name(), b.Name(), from, to)
			}
			return errors.Join(err1, err2)
		}))
	}
}

func TestCopy_SparseIntoPreallocatedSpaceKeepsIt(t *testing.T) {
	eachFS(t, func(t *testing.T, fstype string, size int64) {
		dir := newFS(t, fstype, size)
		src := holey(t, filepath.Join(dir, "src"), 16*mib)
		dst := newFile(t, filepath.Join(dir, "dst"))
		check.OK(t, Preallocate(dst, 32*mib))
		check.OK(t, CopySparse(t.Context(), dst, src))
		check.OK(t, dst.Sync())
		if got := allocated(t, dst.Name()); got < 32*mib {
			t.Errorf("%d bytes of %d are left: blocks are shared or given back", got, 32*mib)
		}
		if info, err := dst.Stat(); err != nil || info.Size() != 32*mib {
			t.Errorf("the copy was cut to %v", info.Size())
		}
		check.OK(t, dst.Truncate(16*mib))
		sameContent(t, dst, src)
	})
}

func TestCopy_SparseLeavesAHoleWhereZerosWereWritten(t *testing.T) {
	dir := newFS(t, "ext4", fileSystems["ext4"])
	src, dst := newFile(t, filepath.Join(dir, "src")), newFile(t, filepath.Join(dir, "dst"))
	check.Got(src.Write(bytes.Repeat([]byte("x"), patchBlock)))(t)
	check.Got(src.Write(make([]byte, 2*copyChunk)))(t)
	check.Got(src.Write([]byte("x")))(t)
	check.OK(t, src.Sync())
	check.OK(t, CopySparse(t.Context(), dst, src))
	check.OK(t, dst.Sync())
	if got := allocated(t, dst.Name()); got > 3*patchBlock {
		t.Errorf("the copy takes %d bytes, and its source %d", got, allocated(t, src.Name()))
	}
	check.Same(t, checksum(t, dst.Name()), checksum(t, src.Name()))
}

func TestCopy_WorksAcrossFileSystems(t *testing.T) {
	src := holey(t, filepath.Join(newFS(t, "xfs", fileSystems["xfs"]), "src"), 64*mib)
	dst := newFile(t, filepath.Join(newFS(t, "btrfs", fileSystems["btrfs"]), "dst"))
	check.Same(t, check.Got(CopyFile(t.Context(), dst, src))(t), false) // not reflinked
	sameContent(t, dst, src)
}

func TestCopy_ImageInUseIsCopiedAsItsDeviceSeesIt(t *testing.T) {
	for _, pool := range []string{"ext4", "xfs"} {
		t.Run(pool, func(t *testing.T) {
			dir := newFS(t, pool, gib)
			image := filepath.Join(dir, "image")
			newSparse(t, image, 320*mib)
			check.OK(t, MakeFS(t.Context(), image, MkfsSpec{FSType: "xfs"}))
			mounted, _ := mountLoop(t, image, "xfs")
			for _, round := range []string{"first", "second"} {
				content := string(bytes.Repeat([]byte(round), 1<<18))
				write(t, filepath.Join(mounted, "file"), content)
				frozen := freezeFor(t, mounted, 10*time.Minute)
				src, err := os.Open(image)
				check.OK(t, err)
				dst := newFile(t, filepath.Join(dir, round))
				_, err = CopyFile(t.Context(), dst, src)
				src.Close()
				check.OK(t, errors.Join(err, frozen.Thaw()))
				copied, _ := mountLoop(t, dst.Name(), "xfs")
				if read(t, filepath.Join(copied, "file")) != content {
					t.Errorf("the %s copy does not hold what was written before the freeze", round)
				}
				unmountAll(t, copied)
			}
		})
	}
}

// endsAfter is a context that ends after a number of checks.
type endsAfter struct {
	context.Context
	asked int
}

func (c *endsAfter) Err() error {
	if c.asked--; c.asked < 0 {
		return context.Canceled
	}
	return nil
}

func TestCopy_IsCancelledBetweenTwoChunks(t *testing.T) {
	dir := t.TempDir()
	src := newFile(t, filepath.Join(dir, "src"))
	check.Got(src.Write(bytes.Repeat([]byte("x"), 10*copyChunk)))(t)
	dst := newFile(t, filepath.Join(dir, "dst"))
	check.Fails(t, CopySparse(&endsAfter{t.Context(), 3}, dst, src), context.Canceled)
	if got := allocated(t, dst.Name()); got > 4*copyChunk {
		t.Errorf("%d bytes were copied after the end", got)
	}
	check.Fails(t, check.ErrorOf(CopyFile(&endsAfter{t.Context(), 0}, dst, src)), context.Canceled)
}

func TestCopy_ThatDoesNotFitIsENOSPC(t *testing.T) {
	dir := newFS(t, "ext4", 16*mib)
	src := newFile(t, filepath.Join(t.TempDir(), "src"))
	check.Got(src.Write(bytes.Repeat([]byte("x"), 32<<20)))(t)
	check.Fails(t, check.ErrorOf(CopyFile(t.Context(), newFile(t, filepath.Join(dir, "dst")), src)), unix.ENOSPC)
}

func TestPreallocation_ThatDoesNotFitLeavesFileAndSpaceUnchanged(t *testing.T) {
	eachFS(t, func(t *testing.T, fstype string, size int64) {
		dir := newFS(t, fstype, size)
		f := newFile(t, filepath.Join(dir, "file"))
		check.OK(t, Preallocate(f, mib))
		syncAt(t, dir)
		before := check.Got(Statfs(t.Context(), dir))(t)
		tooMuch := []int64{2 * size, before.Available + 2*mib}
		if fstype == "xfs" {
			tooMuch = append(tooMuch, before.Available+mib) // more than one file can allocate
		}
		for _, tooMuch := range tooMuch {
			if err := Preallocate(f, tooMuch); !errors.Is(err, unix.ENOSPC) {
				t.Errorf("%d bytes: %v, want ENOSPC", tooMuch, err)
			}
			if info, err := f.Stat(); err != nil || info.Size() != mib {
				t.Errorf("the file has %d bytes, %v", info.Size(), err)
			}
		}
		syncAt(t, dir)
		after, err := Statfs(t.Context(), dir)
		if err != nil || after.Available < before.Available-mib {
			t.Errorf("available: %d, before %d (%v)", after.Available, before.Available, err)
		}
	})
}

func TestPreallocation_IsUsableWhenTheRestIsFull(t *testing.T) {
	for _, fstype := range []string{"ext4", "xfs"} {
		t.Run(fstype, func(t *testing.T) {
			dir := newFS(t, fstype, fileSystems[fstype])
			f := newFile(t, filepath.Join(dir, "file"))
			check.OK(t, Preallocate(f, 8*mib))
			fill(t, filepath.Join(dir, "filler"))
			check.Report(t, check.ErrorOf(f.WriteAt(bytes.Repeat([]byte("x"), 8<<20), 0)))
			check.Report(t, f.Sync())
		})
	}
}

// scattered writes that many blocks with a hole after each, so that each is an extent.
func scattered(t testing.TB, path string, blocks int64) *os.File {
	t.Helper()
	f := newFile(t, path)
	check.OK(t, f.Truncate(blocks*8*kib)) // otherwise xfs allocates beyond the end
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
			check.Same(t, check.Got(CopyFile(t.Context(), dst, src))(t), true) // reflinked
			expect("after a copy", 0)
			check.Got(src.WriteAt(bytes.Repeat([]byte{2}, int(4*kib)), 16*kib))(t)
			check.OK(t, src.Sync())
			expect("after a write to one of its blocks", 4*kib)
			check.OK(t, os.Remove(dst.Name()))
			dst.Close()
			wait.Until(t, "the freedom of the blocks, which the kernel gives back in the background", func() bool {
				command(t, "sync", "--file-system", dir)
				return check.Got(Unshared(src))(t) == blocks*4*kib
			})
		})
	}
}

func TestExtents_EmptyFileHasNoneAndUnsupportedFileSystemIsAnError(t *testing.T) {
	check.Same(t, check.Got(Unshared(newFile(t, filepath.Join(newFS(t, "ext4", fileSystems["ext4"]), "empty"))))(t), 0)
	proc := check.Got(os.Open("/proc/self/status"))(t)
	defer proc.Close()
	check.Fails(t, check.ErrorOf(Unshared(proc)), nil)
}
