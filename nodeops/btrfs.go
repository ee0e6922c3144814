package nodeops

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// From linux/btrfs.h and linux/btrfs_tree.h.
const (
	subvolCreate    = 0x5000940E
	subvolDestroy   = 0x5000940F
	subvolDestroyV2 = 0x5000943F
	subvolSnapshot  = 0x50009417
	subvolLookup    = 0xD0009412 // INO_LOOKUP
	treeSearch      = 0xD0009411
	startSync       = 0x80089418

	subvolRoot  = 256    // inode of every subvolume's root directory, and the first subvolume's id
	snapshotRO  = 1 << 1 // BTRFS_SUBVOL_RDONLY
	destroyByID = 1 << 4 // BTRFS_SUBVOL_SPEC_BY_ID
	treeOfRoots = 1
	rootItem    = 132 // type of the item that a subvolume has until its space is freed
	rootRef     = 156 // type of the items whose offsets are the ids of the subvolumes in one
)

type subvolArgs struct {
	_    int64
	name [4088]byte
}

type subvolArgsV2 struct {
	source   int64
	_, flags uint64
	_        [4]uint64
	name     [4040]byte // or, in its first 8 bytes, an id
}

type lookupArgs struct {
	tree, object uint64
	_            [4080]byte
}

type searchArgs struct {
	tree, firstObject, lastObject, firstOffset, lastOffset, _, lastTransaction uint64
	firstType, lastType, items, _                                              uint32
	_                                                                          [4]uint64
	found                                                                      [3992]byte
}

// inParent calls f with the parent directory of path, opened, and the base name.
func inParent(path string, f func(parent *os.File, name string) error) error {
	parent, err := os.OpenFile(filepath.Dir(path), os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer parent.Close()
	return f(parent, filepath.Base(path))
}

// onSubvolume calls f with the subvolume at path, opened, and its id.
func onSubvolume(path string, f func(root *os.File, id uint64) error) error {
	root, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer root.Close()
	if is, err := IsSubvolume(path); err != nil {
		return err
	} else if !is {
		return fmt.Errorf("it is a plain directory: %w", unix.EINVAL)
	}
	args := lookupArgs{object: subvolRoot}
	if err := ioctl(root, subvolLookup, unsafe.Pointer(&args)); err != nil {
		return err
	}
	return f(root, args.tree)
}

// CreateSubvolume creates an empty subvolume.
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

// SnapshotSubvolume creates dst as a snapshot of src. Subvolumes that users created in src are empty directories in it.
func SnapshotSubvolume(dst, src string, readOnly bool) error {
	err := onSubvolume(src, func(source *os.File, _ uint64) error {
		return inParent(dst, func(parent *os.File, name string) error {
			args := subvolArgsV2{source: int64(source.Fd())}
			if readOnly {
				args.flags = snapshotRO
			}
			copy(args.name[:len(args.name)-1], name)
			return ioctl(parent, subvolSnapshot, unsafe.Pointer(&args))
		})
	})
	if err != nil {
		return fmt.Errorf("snapshotting subvolume %s as %s: %w", src, dst, err)
	}
	return nil
}

// DeleteSubvolume removes a subvolume and all subvolumes that users created in it. It does not wait for the kernel,
// which frees the space in the background and keeps the quota group until then. Linux 6.11 and later remove the quota
// group; on older kernels each deletion removes those that earlier ones left, and SweepQgroups the last one.
func DeleteSubvolume(ctx context.Context, path string) error {
	err := onSubvolume(path, func(root *os.File, id uint64) error {
		if err := destroyInside(ctx, root, id); err != nil {
			return err
		}
		return inParent(path, func(parent *os.File, name string) error {
			args := subvolArgs{}
			copy(args.name[:len(args.name)-1], name)
			if err := ioctl(parent, subvolDestroy, unsafe.Pointer(&args)); err != nil {
				return err
			}
			if !removesQgroups() {
				return sweepQgroups(parent)
			}
			var transaction uint64 // the commit wakes the cleaner thread, which would otherwise sleep for up to 30 s
			return ioctl(parent, startSync, unsafe.Pointer(&transaction))
		})
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("deleting subvolume %s: %w", path, err)
	}
	return nil
}

// destroyInside removes the subvolumes in another by their ids, regardless of their names and depth.
func destroyInside(ctx context.Context, root *os.File, id uint64) error {
	for way := []uint64{id}; ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		at := way[len(way)-1]
		inner, err := searchRoots(root, at, rootRef)
		switch {
		case err != nil:
			return err
		case len(inner) > 0:
			way = append(way, inner[0])
			continue
		case len(way) == 1:
			return nil
		}
		args := subvolArgsV2{flags: destroyByID}
		binary.NativeEndian.PutUint64(args.name[:], at)
		if err := ioctl(root, subvolDestroyV2, unsafe.Pointer(&args)); err != nil {
			return fmt.Errorf("subvolume %d in it: %w", at, err)
		}
		way = way[:len(way)-1]
	}
}

// searchRoots returns the offsets of the items of one type that the root tree has for a subvolume, at least one if
// there are any.
func searchRoots(root *os.File, id uint64, itemType uint32) (offsets []uint64, err error) {
	const most, headerSize = 8, 32
	args := searchArgs{
		tree: treeOfRoots, firstObject: id, lastObject: id, lastOffset: ^uint64(0), lastTransaction: ^uint64(0),
		firstType: itemType, lastType: itemType, items: most,
	}
	if err := ioctl(root, treeSearch, unsafe.Pointer(&args)); err != nil {
		return nil, fmt.Errorf("searching the tree of subvolumes: %w", err)
	}
	rest := args.found[:]
	for range args.items { // transaction, object, offset, type, length, content
		offsets = append(offsets, binary.NativeEndian.Uint64(rest[16:]))
		rest = rest[headerSize+binary.NativeEndian.Uint32(rest[28:]):]
	}
	return offsets, nil
}

// IsSubvolume returns whether path is the root directory of a subvolume.
func IsSubvolume(path string) (bool, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return false, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Ino != subvolRoot || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return false, nil
	}
	var sfs unix.Statfs_t
	if err := unix.Statfs(path, &sfs); err != nil {
		return false, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	return sfs.Type == unix.BTRFS_SUPER_MAGIC, nil
}
