// Package image keeps a volume as a disk image. The content cannot exceed the size of the image.
package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/local/engine"
	"github.com/holdfast-storage/holdfast/crashpoint"
	"github.com/holdfast-storage/holdfast/nodeops"
)

const (
	// file is the name of the image in its entry.
	file = "image"
	// instant is a clone of the source that a thick copy is made from, until the copy is finished.
	instant = "image.source"
)

// smallestBlock is the minimum size of a raw block volume.
const smallestBlock = 1 << 20

// Engine keeps the entries of a pool as images.
type Engine struct {
	FreezeLimit time.Duration // how long the user of a volume may wait while it is copied

	path    string
	fsType  string
	reflink bool
	slow    sync.Map // of attempt: when it took longer than FreezeLimit
}

var (
	_ engine.Engine   = (*Engine)(nil)
	_ engine.Examiner = (*Engine)(nil)
	_ engine.Meter    = (*Engine)(nil)
)

// Open returns the engine for the pool at path.
func Open(path string) (*Engine, error) {
	features, err := nodeops.Probe(path)
	if err != nil {
		return nil, err
	}
	en := &Engine{FreezeLimit: copyLimit, path: path, fsType: features.FSType, reflink: features.Reflink}
	if en.reflink {
		en.FreezeLimit = cloneLimit
	}
	return en, nil
}

// FileSystem says whether images can share blocks.
func (en *Engine) FileSystem() (string, backend.SnapshotCost) {
	if en.reflink {
		return en.fsType, backend.SharesBlocks
	}
	return en.fsType, backend.CopiesAll
}

func (*Engine) Close() error { return nil }

// Plan selects the file system: the requested one or ext4, and for a copy that of its source.
func (*Engine) Plan(spec backend.VolumeSpec, source *engine.Content) (engine.Content, int64, error) {
	c := engine.Content{
		Mode:         cmp.Or(spec.Mode, backend.Filesystem),
		FSType:       spec.FSType,
		Provisioning: cmp.Or(spec.Provisioning, backend.Thin),
		MkfsOptions:  spec.MkfsOptions,
		Inodes:       spec.Inodes,
	}
	if source != nil {
		return planCopy(spec, c, source)
	}
	if c.Mode == backend.Block {
		if c.FSType != "" || len(c.MkfsOptions) > 0 || c.Inodes > 0 {
			return c, 0, fmt.Errorf("%w: a block volume has no file system; leave out fstype, mkfsOptions and inodes", backend.ErrInvalid)
		}
		return c, smallestBlock, nil
	}
	c.FSType = cmp.Or(c.FSType, "ext4")
	smallest, err := nodeops.SmallestFS(c.FSType)
	if err == nil {
		err = nodeops.CheckMkfs(mkfs(&c))
	}
	if err != nil {
		return c, 0, fmt.Errorf("%w: %w", backend.ErrInvalid, err)
	}
	return c, smallest, nil
}

func planCopy(spec backend.VolumeSpec, c engine.Content, source *engine.Content) (engine.Content, int64, error) {
	switch {
	case spec.Mode != "" && spec.Mode != source.Mode:
		return c, 0, fmt.Errorf("%w: the source is a volume of mode %s, requested is %s", backend.ErrInvalid, source.Mode, spec.Mode)
	case spec.FSType != "" && spec.FSType != source.FSType:
		return c, 0, fmt.Errorf("%w: the source holds %s, requested is %s; leave fstype out to keep it", backend.ErrInvalid, cmp.Or(source.FSType, "a raw block volume"), spec.FSType)
	}
	c.Mode, c.FSType, c.FSSize = source.Mode, source.FSType, source.FSSize
	return c, source.Size, nil
}

func mkfs(c *engine.Content) nodeops.MkfsSpec {
	return nodeops.MkfsSpec{FSType: c.FSType, Options: c.MkfsOptions, Inodes: c.Inodes}
}

// Make creates the image with a file system in it, unless it is a raw block volume. The entry is not visible yet, so an
// incomplete file system is never used.
func (en *Engine) Make(ctx context.Context, e *engine.Entry) error {
	return create(e, file, func(f *os.File) error {
		if err := resize(f, e.Content); err != nil || e.Content.Mode == backend.Block {
			return err
		}
		return exhausted(format(ctx, f, e.Content))
	})
}

// mostInMemory is the size of a file system whose metadata has 10 MiB where it is made.
const mostInMemory = 1 << 40

// format makes a file system in an image that is empty: in memory where it is small, since what mkfs syncs costs nothing there. mkfs.xfs
// fills a log of 64 MiB and more with zeros, which in an image are no more than allocated, and options may ask for such things.
func format(ctx context.Context, f *os.File, c *engine.Content) error {
	if c.FSType == "xfs" || c.Size > mostInMemory || len(c.MkfsOptions) > 0 {
		return nodeops.MakeFS(ctx, f.Name(), mkfs(c))
	}
	content, err := nodeops.NewFSContent(ctx, c.Size, mkfs(c))
	if err != nil {
		return err
	}
	defer content.Close()
	return content.CopyTo(ctx, f, 4<<10)
}

// Copy clones the source's image. A thick copy gets its own blocks: with shared ones the same space would be promised
// twice. Where the pool can clone, they are copied by Finish, when the source is no longer frozen.
func (en *Engine) Copy(ctx context.Context, e, source *engine.Entry) error {
	src, err := source.Dir.Open(file)
	if err != nil {
		return err
	}
	defer src.Close()
	switch thick := isThick(e.Content); {
	case thick && en.reflink:
		return create(e, instant, func(dst *os.File) error { return en.copyImage(ctx, dst, src, source) })
	case thick:
		return fill(ctx, e, src)
	}
	return create(e, file, func(dst *os.File) error {
		if err := en.copyImage(ctx, dst, src, source); err != nil {
			return err
		}
		return resize(dst, e.Content)
	})
}

// copyImage clones an image, or copies it. Where the pool can clone, its user was stopped for the instant of that only: one that
// cannot be cloned, such as a file without checksums on btrfs, is copied while it has no user, or not at all.
func (en *Engine) copyImage(ctx context.Context, dst, src *os.File, source *engine.Entry) error {
	reflinked, err := nodeops.CloneFile(dst, src)
	switch {
	case err != nil || reflinked:
		return exhausted(err)
	case !en.reflink:
		return exhausted(nodeops.CopySparse(ctx, dst, src))
	}
	before, err := src.Stat()
	if err != nil {
		return err
	}
	devices, err := nodeops.LoopsOf(imagePath(source))
	switch {
	case err != nil:
		return err
	case len(devices) > 0:
		return fmt.Errorf("%w: the image of volume %s cannot be cloned, as other images of its pool can (lsattr shows whether it has the attribute C), and is in use (%s), so a copy would not belong to one instant; stop the pods that use it first",
			backend.ErrPrecondition, source.ID, strings.Join(devices, ", "))
	}
	if err := nodeops.CopySparse(ctx, dst, src); err != nil {
		return exhausted(err)
	}
	return checkUnused(source, before)
}

// create makes a file of an entry.
func create(e *engine.Entry, name string, content func(*os.File) error) error {
	f, err := e.Dir.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	return content(f)
}

// fill makes a thick image with the content of src.
func fill(ctx context.Context, e *engine.Entry, src *os.File) error {
	return create(e, file, func(dst *os.File) error {
		if err := resize(dst, e.Content); err != nil {
			return err
		}
		return exhausted(nodeops.CopySparse(ctx, dst, src))
	})
}

// fillFromInstant completes a thick copy whose source was cloned.
func fillFromInstant(ctx context.Context, e *engine.Entry) error {
	src, err := e.Dir.Open(instant)
	if err != nil {
		return err
	}
	defer src.Close()
	if err := fill(ctx, e, src); err != nil {
		return err
	}
	return e.Dir.Remove(instant)
}

// Finish completes a thick copy, and gives a copied file system a new UUID if the kernel refuses to mount two with the
// same UUID.
func (en *Engine) Finish(ctx context.Context, e *engine.Entry, copied bool) error {
	if copied && isThick(e.Content) && en.reflink {
		if err := fillFromInstant(ctx, e); err != nil {
			return err
		}
	}
	if copied && !e.Content.ReadOnly && e.Content.Mode == backend.Filesystem {
		if err := nodeops.RenewFSID(ctx, imagePath(e), e.Content.FSType); err != nil {
			return err
		}
	}
	return nil
}

// ReconcileSize records the size of an image that was grown without a record: a node may already use all of it.
func (*Engine) ReconcileSize(e *engine.Entry) (bool, error) {
	info, err := e.Dir.Lstat(file)
	if err != nil || info.Size() <= e.Content.Size {
		return false, err
	}
	e.Content.Size = info.Size()
	return true, nil
}

// Grow grows the image to Content.Size. It never shrinks one, except to undo its own failure.
func (*Engine) Grow(_ context.Context, e *engine.Entry) error {
	f, err := e.Dir.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	before, err := f.Stat()
	if err != nil {
		return err
	}
	if before.Size() >= e.Content.Size {
		return nil
	}
	if err := resize(f, e.Content); err != nil {
		return errors.Join(err, f.Truncate(before.Size()))
	}
	return f.Sync()
}

// isThick says whether an image has all its blocks from the beginning.
func isThick(c *engine.Content) bool { return c.Provisioning == backend.Thick && !c.ReadOnly }

// resize sets the size of the image, and allocates all blocks of a thick one.
func resize(f *os.File, c *engine.Content) error {
	if isThick(c) {
		return exhausted(nodeops.Preallocate(f, c.Size))
	}
	return exhausted(f.Truncate(c.Size))
}

func exhausted(err error) error {
	switch {
	case errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT):
		return fmt.Errorf("%w: the pool's file system is full: %w", backend.ErrExhausted, err)
	case errors.Is(err, unix.EFBIG):
		return fmt.Errorf("%w: the pool's file system does not support a file of that size: %w", backend.ErrOutOfRange, err)
	}
	return err
}

func (*Engine) Remove(_ context.Context, e *engine.Entry) error {
	if err := e.Dir.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	crashpoint.Here(crashpoint.DeletePartly)
	return nil
}

func (*Engine) Access(e *engine.Entry) backend.Access {
	return backend.Access{Image: imagePath(e)}
}

func imagePath(e *engine.Entry) string { return filepath.Join(e.Dir.Name(), file) }

// InUse returns the loop devices that are attached to the image.
func (*Engine) InUse(e *engine.Entry) (string, error) {
	devices, err := nodeops.LoopsOf(imagePath(e))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.Join(devices, ", "), err
}

// Inspect compares the image with its metadata.
func (*Engine) Inspect(e *engine.Entry) (int64, backend.Condition) {
	info, err := e.Dir.Lstat(file)
	switch {
	case err != nil:
		return 0, backend.Abnormal("its image cannot be read: %v; restore it from a snapshot or backup", err)
	case !info.Mode().IsRegular():
		return 0, backend.Abnormal("its image is of type %s and not a file", info.Mode().Type())
	}
	used := info.Sys().(*syscall.Stat_t).Blocks * 512
	if info.Size() < e.Content.Size {
		return used, backend.Abnormal("its image holds %s of %s: it was truncated; restore it from a snapshot or backup", backend.Readable(info.Size()), backend.Readable(e.Content.Size))
	}
	return used, backend.Condition{}
}

// Inodes counts the image, not the files of its entry.
func (*Engine) Inodes(*engine.Entry) int64 { return 1 }

// Unshared excludes blocks that are shared with snapshots and clones.
func (en *Engine) Unshared(e *engine.Entry) (int64, error) {
	used, condition := en.Inspect(e)
	if !en.reflink || condition.Abnormal {
		return used, nil
	}
	f, err := e.Dir.Open(file)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	bytes, err := nodeops.Unshared(f)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOTTY) { // a pool on NFS
		return 0, nil
	}
	return min(bytes, used), err // a compressed image uses less than its extents say
}
