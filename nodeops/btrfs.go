package nodeops

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Of linux/btrfs.h.
const (
	subvolCreate   = 0x5000940E
	subvolDestroy  = 0x5000940F
	subvolSnapshot = 0x50009417
	subvolID       = 0xD0009412 // INO_LOOKUP
	quotaControl   = 0xC0109428
	qgroupCreate   = 0x4010942A
	qgroupLimit    = 0x8030942B
	rescanWait     = 0x942E

	subvolRoot      = 256 // inode of every subvolume's top directory
	snapshotRO      = 1 << 1
	limitReferenced = 1 << 0
)

type subvolArgs struct {
	_    int64
	name [4088]byte
}

type snapshotArgs struct {
	source int64
	_      uint64
	flags  uint64
	_      [4]uint64
	name   [4040]byte
}

type lookupArgs struct {
	tree, object uint64
	_            [4080]byte
}

// inParent calls f with path's parent directory open and its name as the kernel takes it.
func inParent(path string, f func(parent *os.File, name string) error) error {
	parent, err := os.OpenFile(filepath.Dir(path), os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer parent.Close()
	return f(parent, filepath.Base(path))
}

// CreateSubvolume makes an empty subvolume.
func CreateSubvolume(path string) error {
	err := inParent(path, func(parent *os.File, name string) error {
		args := subvolArgs{}
		copy(args.name[:len(args.name)-1], name)
		return ioctl(parent, subvolCreate, unsafe.Pointer(&args))
	})
	if err != nil {
		return fmt.Errorf("creating subvolume %s: %w", path, err)
	}
	return nil
}

// SnapshotSubvolume makes dst a subvolume with the content that src has at one instant.
func SnapshotSubvolume(dst, src string, readOnly bool) error {
	source, err := os.OpenFile(src, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer source.Close()
	err = inParent(dst, func(parent *os.File, name string) error {
		args := snapshotArgs{source: int64(source.Fd())}
		if readOnly {
			args.flags = snapshotRO
		}
		copy(args.name[:len(args.name)-1], name)
		return ioctl(parent, subvolSnapshot, unsafe.Pointer(&args))
	})
	if err != nil {
		return fmt.Errorf("snapshotting subvolume %s as %s: %w", src, dst, err)
	}
	return nil
}

// DeleteSubvolume removes a subvolume and those that its users made in it. Its quota group goes with it on Linux 6.11
// and later, and with the next SweepQgroups on others: the kernel frees the space in the background.
func DeleteSubvolume(ctx context.Context, path string) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	err := destroySubvolume(path)
	if errors.Is(err, unix.ENOTEMPTY) {
		if err = destroyNested(ctx, path); err == nil {
			err = destroySubvolume(path)
		}
	}
	if err != nil {
		return fmt.Errorf("deleting subvolume %s: %w", path, err)
	}
	return nil
}

func destroySubvolume(path string) error {
	return inParent(path, func(parent *os.File, name string) error {
		args := subvolArgs{}
		copy(args.name[:len(args.name)-1], name)
		return ioctl(parent, subvolDestroy, unsafe.Pointer(&args))
	})
}

// destroyNested removes the subvolumes below path, the deepest first.
func destroyNested(ctx context.Context, path string) error {
	nested, err := NestedSubvolumes(ctx, path)
	for _, p := range slices.Backward(nested) {
		if err == nil {
			err = destroySubvolume(p)
		}
	}
	return err
}

// NestedSubvolumes lists the subvolumes below one, each before those inside it. Anyone who may write to a subvolume
// can make them, and the limit does not count what is in them.
func NestedSubvolumes(ctx context.Context, path string) (nested []string, err error) {
	err = filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() || p == path {
			return err
		}
		if is, err := IsSubvolume(p); err != nil {
			return err
		} else if is {
			nested = append(nested, p)
		}
		return ctx.Err()
	})
	return nested, err
}

// IsSubvolume says whether path is the top directory of a subvolume.
func IsSubvolume(path string) (bool, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return false, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	var sfs unix.Statfs_t
	if err := unix.Statfs(path, &sfs); err != nil {
		return false, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	return sfs.Type == unix.BTRFS_SUPER_MAGIC && st.Mode&unix.S_IFMT == unix.S_IFDIR && st.Ino == subvolRoot, nil
}

// EnableBtrfsQuota switches quotas on and waits until what is there is counted.
func EnableBtrfsQuota(ctx context.Context, path string) error {
	root, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer root.Close()
	if !hasQgroups(root) {
		enable := [2]uint64{1, 0}
		if err := ioctl(root, quotaControl, unsafe.Pointer(&enable)); err != nil {
			return fmt.Errorf("enabling quotas: %w", err)
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return ioctl(root, rescanWait, nil)
}

// LimitSubvolume limits what a subvolume may hold, counting what it shares with snapshots as its own.
func LimitSubvolume(path string, bytes int64) error {
	return onSubvolume(path, "limiting", func(root *os.File, id uint64) error {
		limit := [6]uint64{id, limitReferenced, uint64(bytes)}
		return ioctl(root, qgroupLimit, unsafe.Pointer(&limit))
	})
}

// SubvolumeUsage says what a subvolume holds.
func SubvolumeUsage(path string) (used int64, err error) {
	err = onSubvolume(path, "reading the usage of", func(root *os.File, id uint64) error {
		value, err := os.ReadFile(filepath.Join(qgroupsOf(root), fmt.Sprintf("0_%d", id), "referenced"))
		if err != nil {
			return err
		}
		used, err = strconv.ParseInt(strings.TrimSpace(string(value)), 10, 64)
		return err
	})
	return used, err
}

func onSubvolume(path, verb string, f func(root *os.File, id uint64) error) error {
	root, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer root.Close()
	args := lookupArgs{object: subvolRoot}
	if err = ioctl(root, subvolID, unsafe.Pointer(&args)); err == nil {
		err = f(root, args.tree)
	}
	if err != nil {
		return fmt.Errorf("%s subvolume %s: %w", verb, path, err)
	}
	return nil
}

// SweepQgroups removes the quota groups of subvolumes that are gone, which older kernels leave behind.
func SweepQgroups(path string) error {
	root, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer root.Close()
	names, err := os.ReadDir(qgroupsOf(root))
	if err != nil {
		return err
	}
	for _, n := range names {
		s, ok := strings.CutPrefix(n.Name(), "0_")
		id, err := strconv.ParseUint(s, 10, 64)
		if !ok || err != nil || id < subvolRoot {
			continue
		}
		args := lookupArgs{tree: id, object: subvolRoot}
		if err := ioctl(root, subvolID, unsafe.Pointer(&args)); !errors.Is(err, unix.ENOENT) {
			continue
		}
		remove := [2]uint64{0, id}
		err = ioctl(root, qgroupCreate, unsafe.Pointer(&remove))
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("removing quota group 0/%d of %s: %w", id, path, err)
		}
	}
	return nil
}
