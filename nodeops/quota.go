package nodeops

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Limits are what a quota allows; zero inodes means any number.
type Limits struct {
	Bytes  int64
	Inodes uint64
}

// ProjectQuota hands out the project ids of one xfs or ext4 and limits what their files take. The kernel's quota
// table, which lies in the file system, says which ids are taken: by us, by another pool or by anyone else.
type ProjectQuota struct {
	dir *os.File
	top string // highest directory of the file system that can be seen; holds the lock

	mu   sync.Mutex
	free uint32 // no id below it, from firstProject on, is known to be free
}

// firstProject keeps away from the ids that administrators and container runtimes count up from.
const firstProject = 1 << 24

// OpenProjectQuota opens the quotas of the file system that dir lies on.
func OpenProjectQuota(dir string) (*ProjectQuota, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	if !enforcesProjects(f) {
		f.Close()
		return nil, fmt.Errorf("%s: its file system does not enforce project quotas; mount it with -o prjquota (ext4 must first have got tune2fs -O project,quota -Q prjquota; Linux 5.14 or later)", dir)
	}
	top, err := topOf(dir)
	if err != nil {
		f.Close()
		return nil, err
	}
	return &ProjectQuota{dir: f, top: top, free: firstProject}, nil
}

// topOf returns the highest directory above dir on the same file system.
func topOf(dir string) (string, error) {
	device := func(path string) (uint64, error) {
		var st unix.Stat_t
		err := unix.Stat(path, &st)
		return st.Dev, err
	}
	top, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", err
	}
	want, err := device(top)
	for err == nil && top != "/" {
		var above uint64
		if above, err = device(filepath.Dir(top)); above != want {
			break
		}
		top = filepath.Dir(top)
	}
	return top, err
}

// Close lets go of the file system; what was reserved stays.
func (q *ProjectQuota) Close() error { return q.dir.Close() }

// Reserve finds a free id, tells it to record, so that it can be released after a crash, and limits it, from which
// moment on it is taken. Nobody else reserves on the file system meanwhile.
func (q *ProjectQuota) Reserve(l Limits, record func(id uint32) error) (uint32, error) {
	unlock, err := lockFile(q.top)
	if err != nil {
		return 0, err
	}
	defer unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	id, err := q.nextFree()
	if err != nil {
		return 0, err
	}
	if err := record(id); err != nil {
		return 0, err
	}
	if err := q.SetLimits(id, l); err != nil {
		return 0, err
	}
	q.free = id + 1
	return id, nil
}

// nextFree walks over the ids that are taken: the kernel names the next one in its table at each step.
func (q *ProjectQuota) nextFree() (uint32, error) {
	for id := q.free; ; id++ {
		if id == math.MaxUint32 {
			return 0, fmt.Errorf("no quota project id above %d is free: %w", firstProject, unix.ENOSPC)
		}
		used := dqblk{}
		switch err := q.call(getNextQuota, id, &used); {
		case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH):
			return id, nil
		case err != nil:
			return 0, fmt.Errorf("reading the quota table after id %d: %w", id, err)
		case used.ID > id:
			return id, nil
		}
	}
}

// SetLimits replaces the limits of an id.
func (q *ProjectQuota) SetLimits(id uint32, l Limits) error {
	blocks := uint64(l.Bytes+quotaBlock-1) / quotaBlock
	d := dqblk{BlockHard: blocks, BlockSoft: blocks, InodeHard: l.Inodes, InodeSoft: l.Inodes, Valid: quotaLimits}
	if err := q.call(setQuota, id, &d); err != nil {
		return fmt.Errorf("limiting quota project %d to %d bytes and %d inodes: %w", id, l.Bytes, l.Inodes, err)
	}
	return nil
}

// Usage says what the files of an id take.
func (q *ProjectQuota) Usage(id uint32) (bytes int64, inodes uint64, err error) {
	d := dqblk{}
	err = q.call(getQuota, id, &d)
	if errors.Is(err, unix.ENOENT) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, fmt.Errorf("reading the usage of quota project %d: %w", id, err)
	}
	return int64(d.Space), d.Inodes, nil
}

// Release clears an id's limits; with its files gone it is free again. Repeated, it changes nothing.
func (q *ProjectQuota) Release(id uint32) error {
	if err := q.SetLimits(id, Limits{}); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if id >= firstProject {
		q.free = min(q.free, id)
	}
	return nil
}

// Of linux/quota.h; xfs answers the same calls.
const (
	getQuota     = 0x800007
	setQuota     = 0x800008
	getNextQuota = 0x800009
	projectQuota = 2
	quotaBlock   = 1024
	quotaLimits  = 1 | 4 // blocks and inodes
)

// dqblk is struct if_nextdqblk; if_dqblk is the same without the id.
type dqblk struct {
	BlockHard, BlockSoft, Space  uint64
	InodeHard, InodeSoft, Inodes uint64
	BlockGrace, InodeGrace       uint64
	Valid, ID                    uint32
}

func (q *ProjectQuota) call(command uintptr, id uint32, d *dqblk) error {
	return uninterrupted(func() error {
		_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, q.dir.Fd(), command<<8|projectQuota, uintptr(id), uintptr(unsafe.Pointer(d)), 0, 0)
		if errno != 0 {
			return syscall.Errno(errno)
		}
		return nil
	})
}
