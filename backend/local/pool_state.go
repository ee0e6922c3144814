package local

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// usable returns why the pool cannot be written: it was unmounted or replaced, or is read-only.
func (p *pool) usable() error {
	if err := p.gone(); err != nil {
		return err
	}
	if _, err := os.Stat(p.Path); err != nil {
		return fmt.Errorf("%w: pool %s: %w", backend.ErrUnavailable, p.Name, err)
	}
	var s unix.Statfs_t
	if err := unix.Fstatfs(int(p.dir.Fd()), &s); err != nil {
		return fmt.Errorf("%w: pool %s: %w", backend.ErrUnavailable, p.Name, err)
	}
	if s.Flags&unix.ST_RDONLY != 0 || p.failed.Load() {
		return fmt.Errorf("%w: pool %s: the file system of %s is read-only; look in the kernel's log for the reason and remount it", backend.ErrUnavailable, p.Name, p.Path)
	}
	return nil
}

// gone returns why the pool must be opened again: it was unmounted or replaced, or its disk was removed or has failed.
func (p *pool) gone() error {
	away := func(format string, args ...any) error {
		err := fmt.Errorf("%w: pool %s: "+format, append([]any{backend.ErrUnavailable, p.Name}, args...)...)
		return backend.BecauseOf(backend.NotMounted, err)
	}
	opened, err := p.dir.Stat()
	if err != nil {
		return away("the directory that was opened at %s: %w", p.Path, err)
	}
	now, err := os.Stat(p.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return away("%s is gone: %w; was its file system unmounted? mount it again and it is served again within %s", p.Path, err, seekEvery)
	case err == nil && !os.SameFile(now, opened):
		return away("%s is not the directory that was opened; was its file system unmounted? mount it again and it is served again within %s", p.Path, seekEvery)
	case nodeops.DeviceGone(p.device):
		return away("the disk below %s is gone; put it back and it is served again within %s; if volumes on it were in use, drain the node first", p.Path, seekEvery)
	case p.dead():
		return away("the file system of %s has failed; look in the kernel's log for the reason, mount it again, and it is served again within %s", p.Path, seekEvery)
	}
	return nil
}

// dead returns whether the file system was shut down by an error, after which only a new mount helps.
func (p *pool) dead() bool {
	d, err := p.root.Open(".")
	if err == nil {
		_, err = d.Readdirnames(1)
		d.Close()
	}
	return err != nil && !errors.Is(err, io.EOF) && (errors.Is(err, unix.EIO) || errors.Is(err, unix.ESTALE) || errors.Is(err, unix.ENODEV))
}
