package nodeops

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// quotaTable is the kernel's table of project quotas of one file system. xfs supports the generic calls, too.
type quotaTable struct {
	dir    *os.File // in the file system
	device []byte   // with a terminating NUL; set if the kernel lacks quotactl_fd (before Linux 5.14)
}

// From linux/quota.h and linux/dqblk_xfs.h.
const (
	getQuota     = 0x800007
	setQuota     = 0x800008
	getNextQuota = 0x800009
	getQuotaStat = 'X'<<8 + 8
	projectQuota = 2
	quotaBlock   = 1024
	quotaLimits  = 1 | 4  // the valid fields: limits of blocks and inodes
	enforced     = 1 << 5 // FS_QUOTA_PDQ_ENFD
)

// dqblk is struct if_nextdqblk; if_dqblk has padding in place of ID.
type dqblk struct {
	BlockHard, BlockSoft, Space  uint64
	InodeHard, InodeSoft, Inodes uint64
	BlockGrace, InodeGrace       uint64
	Valid, ID                    uint32
}

func (d *dqblk) limited() bool {
	return d.BlockHard|d.BlockSoft|d.InodeHard|d.InodeSoft != 0
}

func (d *dqblk) free() bool { return !d.limited() && d.Space|d.Inodes == 0 }

// quotaStat is struct fs_quota_statv.
type quotaStat struct {
	version int8
	_       uint8
	flags   uint16
	_       [164]byte
}

func openQuotaTable(dir *os.File) *quotaTable {
	t := &quotaTable{dir: dir}
	stat := quotaStat{version: 1}
	if err := t.call(getQuotaStat, 0, unsafe.Pointer(&stat)); errors.Is(err, unix.ENOSYS) {
		// Either the call or quotas are not supported: the other call shows which.
		if device, err := deviceUnder(dir); err == nil {
			t.device = append([]byte(device), 0)
		}
	}
	return t
}

// deviceUnder returns the block device of a directory's file system.
func deviceUnder(dir *os.File) (string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return "", err
	}
	name := deviceName(fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)))
	if name == "" {
		return "", errors.New("it is not on a block device")
	}
	return "/dev/" + strings.ReplaceAll(name, "!", "/"), nil
}

// enforced fails if the file system does not enforce project quotas, with what to do.
func (t *quotaTable) enforced() error {
	stat := quotaStat{version: 1}
	err := t.call(getQuotaStat, 0, unsafe.Pointer(&stat))
	if err == nil && stat.flags&enforced != 0 {
		return nil
	}
	const help = "limits of projects are not enforced; mount it with -o prjquota (an ext4 needs tune2fs -O project,quota -Q prjquota first)"
	if err != nil {
		return fmt.Errorf("%s: %w", help, err)
	}
	return errors.New(help)
}

func (t *quotaTable) get(id uint32) (dqblk, error) {
	d := dqblk{}
	err := t.call(getQuota, id, unsafe.Pointer(&d))
	if errors.Is(err, unix.ENOENT) {
		return d, nil
	}
	if err != nil {
		return d, fmt.Errorf("reading the quota of project %d: %w", id, err)
	}
	return d, nil
}

// firstFrom returns the first entry from id on, or nil.
func (t *quotaTable) firstFrom(id uint32) (*dqblk, error) {
	d := dqblk{}
	err := t.call(getNextQuota, id, unsafe.Pointer(&d))
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the quotas from project %d on: %w", id, err)
	}
	return &d, nil
}

func (t *quotaTable) set(id uint32, l Limits) error {
	blocks := (uint64(l.Bytes) + quotaBlock - 1) / quotaBlock
	d := dqblk{BlockHard: blocks, InodeHard: l.Inodes, Valid: quotaLimits}
	return t.call(setQuota, id, unsafe.Pointer(&d))
}

func (t *quotaTable) call(command uintptr, id uint32, arg unsafe.Pointer) error {
	command = command<<8 | projectQuota
	return uninterrupted(func() error {
		var errno unix.Errno
		if t.device == nil {
			_, _, errno = unix.Syscall6(unix.SYS_QUOTACTL_FD, t.dir.Fd(), command, uintptr(id), uintptr(arg), 0, 0)
		} else {
			_, _, errno = unix.Syscall6(unix.SYS_QUOTACTL, command, uintptr(unsafe.Pointer(&t.device[0])), uintptr(id), uintptr(arg), 0, 0)
		}
		if errno != 0 {
			return errno
		}
		return nil
	})
}
