package nodeops

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// growing are the devices whose file systems are being grown; a file system smaller than its device is no fault then.
var growing sync.Map

// GrowMounted grows an attached device to the size of its image, and the file system mounted from it to the size of the
// device. limit is that of GrowAttached.
func GrowMounted(ctx context.Context, device, mountpoint string, limit time.Duration) error {
	growing.Store(device, nil)
	defer growing.Delete(device)
	if err := GrowAttached(ctx, device, limit); err != nil {
		return err
	}
	return GrowFS(ctx, device, mountpoint)
}

// GrowFS grows a mounted file system to the size of its device. It is idempotent, and does nothing for a read-only
// mount.
func GrowFS(ctx context.Context, device, mountpoint string) error {
	if err := growFS(ctx, device, mountpoint); err != nil {
		return fmt.Errorf("growing the file system at %s to the size of %s: %w", mountpoint, device, err)
	}
	return nil
}

func growFS(ctx context.Context, device, mountpoint string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m, err := MountAt(mountpoint)
	switch {
	case err != nil:
		return err
	case m == nil:
		return errors.New("nothing is mounted there")
	case m.ReadOnly:
		return nil
	}
	size, err := DeviceSize(device)
	if err != nil {
		return err
	}
	root, err := openShown(m)
	if err != nil {
		return err
	}
	if root == nil {
		return errors.New("another file system covers it")
	}
	defer root.Close()
	switch m.FSType {
	case "xfs":
		return growXFS(root, size)
	case "ext4":
		return growExt4(root, device, size)
	case "btrfs":
		return growBtrfs(root)
	}
	return fmt.Errorf("%s cannot grow", m.FSType)
}

// From linux/fs/xfs/libxfs/xfs_fs.h, linux/ext4.h and linux/btrfs.h.
const (
	xfsGrow     = 0x4010586E
	ext4Resize  = 0x40086610
	btrfsResize = 0x50009403
)

func growXFS(root *os.File, size int64) error {
	now, err := xfsOn(root)
	if err != nil {
		return err
	}
	grown := struct {
		blocks     uint64
		maxPercent uint32
	}{uint64(size) / uint64(now.blockSize), now.maxPercent}
	if grown.blocks <= now.blocks {
		return nil
	}
	return os.NewSyscallError("XFS_IOC_FSGROWFSDATA", ioctl(root, xfsGrow, unsafe.Pointer(&grown)))
}

func growExt4(root *os.File, device string, size int64) error {
	now, err := ext4On(device)
	if err != nil {
		return err
	}
	blocks := uint64(size / now.blockSize)
	if blocks <= uint64(now.blocks) {
		return nil
	}
	err = ioctl(root, ext4Resize, unsafe.Pointer(&blocks))
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w: the kernel lets only CAP_SYS_RESOURCE grow a mounted ext4; give it to this process", err)
	}
	return os.NewSyscallError("EXT4_IOC_RESIZE_FS", err)
}

// growBtrfs changes nothing on a file system that is as large as its device.
func growBtrfs(root *os.File) error {
	var largest struct {
		_    int64
		name [4088]byte
	}
	copy(largest.name[:], "max")
	busy, _, errno := unix.Syscall(unix.SYS_IOCTL, root.Fd(), btrfsResize, uintptr(unsafe.Pointer(&largest)))
	switch {
	case errno != 0:
		return os.NewSyscallError("BTRFS_IOC_RESIZE", errno)
	case busy != 0:
		return fmt.Errorf("%w: another operation, such as a balance, has the btrfs", unix.EBUSY)
	}
	return nil
}
