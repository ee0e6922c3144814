package nodeops

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"
)

// FSUsage is the space of a file system, or the part of it that a quota allows, in bytes and inodes.
type FSUsage struct {
	Type                           string
	Total, Used, Available         int64
	Inodes, InodesUsed, InodesFree int64
}

var usages offThread[FSUsage] // by path

// Statfs returns the usage of the file system at path. It returns when ctx ends, even while the kernel hangs.
// Concurrent callers share the result.
func Statfs(ctx context.Context, path string) (FSUsage, error) {
	if err := ctx.Err(); err != nil {
		return FSUsage{}, fmt.Errorf("usage of %s: %w", path, err)
	}
	hangs := fmt.Sprintf("usage of %s: the file system does not answer; look for failing disks or dead servers", path)
	return usages.do(ctx, path, hangs, func() (FSUsage, error) { return statfs(path) })
}

func statfs(path string) (FSUsage, error) {
	var st unix.Statfs_t
	if err := uninterrupted(func() error { return unix.Statfs(path, &st) }); err != nil {
		return FSUsage{}, fmt.Errorf("usage of %s: %w", path, err)
	}
	block := st.Frsize
	return FSUsage{
		Type:       typeName(st.Type),
		Total:      int64(st.Blocks) * block,
		Used:       int64(st.Blocks-st.Bfree) * block,
		Available:  int64(st.Bavail) * block,
		Inodes:     int64(st.Files),
		InodesUsed: int64(st.Files - st.Ffree),
		InodesFree: int64(st.Ffree),
	}, nil
}

// typeName returns the type of a file system that pools may have. ext2 and ext3 have the same magic number as ext4, and
// the same driver.
func typeName(magic int64) string {
	switch magic {
	case unix.EXT4_SUPER_MAGIC:
		return "ext4"
	case unix.XFS_SUPER_MAGIC:
		return "xfs"
	case unix.BTRFS_SUPER_MAGIC:
		return "btrfs"
	case unix.TMPFS_MAGIC:
		return "tmpfs"
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "overlay"
	case unix.F2FS_SUPER_MAGIC:
		return "f2fs"
	case unix.NFS_SUPER_MAGIC:
		return "nfs"
	case unix.FUSE_SUPER_MAGIC:
		return "fuse"
	}
	return fmt.Sprintf("0x%x", magic)
}
