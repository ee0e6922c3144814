package nodeops

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

func TestEmpty_FileWithoutData(t *testing.T) {
	eachFS(t, func(t *testing.T, fstype string, size int64) {
		dir := newFS(t, fstype, size)
		hole := sparse(t, dir, 64*gib)
		unwritten := filepath.Join(dir, "unwritten")
		newSparse(t, unwritten, 0)
		f := check.Got(os.OpenFile(unwritten, os.O_RDWR, 0))(t)
		defer f.Close()
		check.OK(t, Preallocate(f, 16*mib))
		zeros := write(t, filepath.Join(dir, "zeros"), strings.Repeat("\x00", 3<<20))
		for _, path := range []string{hole, unwritten, zeros} {
			if err := ProvenEmpty(t.Context(), path); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
	})
}

func TestEmpty_OneByteAnywhereMakesAFileNotEmpty(t *testing.T) {
	const size = 8 << 20
	for _, at := range []int64{0, 1, 1024, 65536, size / 2, size - 1} {
		image := sparse(t, t.TempDir(), size)
		hostfs.Overwrite(t, image, at, 1)
		if err := ProvenEmpty(t.Context(), image); !errors.Is(err, ErrNotEmpty) || !strings.Contains(err.Error(), image) {
			t.Errorf("byte %d: %v, want ErrNotEmpty that names the file", at, err)
		}
	}
}

func TestEmpty_ZerosBeyondTheReadLimitAreNotProof(t *testing.T) {
	image := sparse(t, t.TempDir(), 0)
	f := check.Got(os.OpenFile(image, os.O_WRONLY, 0))(t)
	defer f.Close()
	for range mostZeros/mib + 1 {
		check.Got(f.Write(make([]byte, mib)))(t)
	}
	check.Fails(t, ProvenEmpty(t.Context(), image), ErrNotEmpty)
}

func TestEmpty_DeviceNeedsNoSignatureAtItsEdgesAndNoUser(t *testing.T) {
	requireRoot(t)
	const size = 16 << 20
	cases := map[string]struct {
		prepare func(t *testing.T, image string)
		want    string
	}{
		"nothing on it":   {func(*testing.T, string) {}, ""},
		"its first bytes": {func(t *testing.T, image string) { hostfs.Overwrite(t, image, 5, 1) }, "data at"},
		"its last byte":   {func(t *testing.T, image string) { hostfs.Overwrite(t, image, size-1, 1) }, "data at"},
		"a partition table": {func(t *testing.T, image string) {
			boot := make([]byte, 512)
			copy(boot[446:], "\x80\x01\x01\x00\x83\x01\x01\x01\x01\x00\x00\x00\x00\x10\x00\x00")
			boot[510], boot[511] = 0x55, 0xAA
			write(t, image, string(boot))
			check.OK(t, os.Truncate(image, size))
		}, "a partition table (dos)"},
		"swap space": {func(t *testing.T, image string) { command(t, "mkswap", image) }, "swap"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			image := sparse(t, t.TempDir(), size)
			c.prepare(t, image)
			l := attach(t, image, LoopOptions{Autoclear: true})
			if c.want == "" {
				check.Report(t, ProvenEmpty(t.Context(), l.Path))
			} else {
				check.Fails(t, ProvenEmpty(t.Context(), l.Path), ErrNotEmpty, c.want)
			}
		})
	}
}

func TestEmpty_DeviceInUseIsNot(t *testing.T) {
	l := attach(t, sparse(t, t.TempDir(), 16*mib), LoopOptions{Autoclear: true})
	user := check.Got(os.OpenFile(l.Path, os.O_RDWR|unix.O_EXCL, 0))(t)
	defer user.Close()
	check.Fails(t, ProvenEmpty(t.Context(), l.Path), ErrNotEmpty, "in use")
}

func TestEmpty_OnlyFilesAndBlockDevicesCanBe(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{dir, "/dev/null", filepath.Join(dir, "missing")} {
		if err := ProvenEmpty(t.Context(), path); err == nil {
			t.Errorf("%s is proven empty", path)
		}
	}
}
