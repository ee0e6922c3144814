package nodeops

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Limits are what a quota allows; zero inodes means any number.
type Limits struct {
	Bytes  int64
	Inodes uint64
}

// ProjectQuota hands out the project ids of one xfs or ext4 and limits what their files take.
//
// Which ids are taken is kept in one place only, the kernel's quota table, which lies in the file system: an id is
// taken while it has a limit or a file. So no id is handed out twice, be it by another pool, process or reboot.
type ProjectQuota struct {
	table *quotaTable
	root  *os.File // of the file system, whichever mount shows it; holds the lock

	mu       sync.Mutex
	next     uint32   // where the search begins; all below it was taken when last seen
	released []uint32 // below next; maybe free
}

// The ids that are handed out: beyond those that administrators write into /etc/projid and that container runtimes
// and kubelets count up from.
const (
	firstProject = 1 << 30
	lastProject  = math.MaxInt32
)

// OpenProjectQuota opens the quotas of the file system that dir lies on.
func OpenProjectQuota(dir string) (*ProjectQuota, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	table := openQuotaTable(f)
	var root *os.File
	if err = table.enforced(); err == nil {
		root, err = openRoot(f)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("opening the project quotas of %s: %w", dir, err)
	}
	return &ProjectQuota{table: table, root: root, next: firstProject}, nil
}

// Close closes the file system; reserved ids stay reserved.
func (q *ProjectQuota) Close() error {
	return errors.Join(q.root.Close(), q.table.dir.Close())
}

// Reserve picks a free id, calls record with it and then sets its limits. No other process reserves on this file system
// during that time.
//
// record must leave what a later process needs to undo the reservation. Best it makes the directory and calls
// SetProject: from then on the kernel itself keeps the id, and an id that a crash left without limits is never handed
// out a second time. When record or the limits fail, nothing is kept but what record did.
func (q *ProjectQuota) Reserve(l Limits, record func(id uint32) error) (uint32, error) {
	if l.Bytes <= 0 {
		return 0, fmt.Errorf("reserving a quota project id: a limit of %d bytes would not keep the id; it must be positive", l.Bytes)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := uninterrupted(func() error { return unix.Flock(int(q.root.Fd()), unix.LOCK_EX) }); err != nil {
		return 0, fmt.Errorf("locking the quota project ids: %w", err)
	}
	defer func() { _ = unix.Flock(int(q.root.Fd()), unix.LOCK_UN) }() // fails on no open file
	id, err := q.pick()
	if err != nil {
		return 0, err
	}
	if err := record(id); err != nil {
		return 0, err
	}
	return id, q.SetLimits(id, l)
}

// pick returns a free id, with a number of system calls that does not grow with the ids in use: the first search of a
// process walks over them, later ones begin where the last one ended.
func (q *ProjectQuota) pick() (uint32, error) {
	if len(q.released) > 0 {
		id := q.released[0]
		q.released = q.released[1:]
		switch d, err := q.table.get(id); {
		case err != nil:
			return 0, err
		case d.free():
			return id, nil
		case !d.limited(): // its files are not all gone yet
			q.released = append(q.released, id)
		}
	}
	if id, err := q.search(q.next); id != 0 || err != nil {
		return id, err
	}
	if id, err := q.search(firstProject); id != 0 || err != nil {
		return id, err
	}
	return 0, fmt.Errorf("all quota project ids from %d to %d are taken: %w", firstProject, lastProject, unix.ENOSPC)
}

// search returns the first free id from the given one on, or 0 where there is none.
func (q *ProjectQuota) search(id uint32) (uint32, error) {
	for id <= lastProject {
		d, err := q.table.following(id)
		if err != nil {
			return 0, err
		}
		if d == nil || d.ID > id || d.free() {
			q.next = id
			return id, nil
		}
		id++
	}
	return 0, nil
}

// SetLimits replaces the limits of an id.
func (q *ProjectQuota) SetLimits(id uint32, l Limits) error {
	if id == 0 || l.Bytes < 0 {
		return fmt.Errorf("limiting quota project %d to %d bytes: 0 is the id of files without a project, and limits must not be negative", id, l.Bytes)
	}
	if err := q.table.set(id, l); err != nil {
		return fmt.Errorf("limiting quota project %d to %d bytes and %d inodes: %w", id, l.Bytes, l.Inodes, err)
	}
	return nil
}

// Usage says what the files of an id take.
func (q *ProjectQuota) Usage(id uint32) (bytes int64, inodes uint64, err error) {
	d, err := q.table.get(id)
	if err != nil {
		return 0, 0, err
	}
	return int64(d.Space), d.Inodes, nil
}

// Limited says whether the kernel has a limit of an id for each requested kind, regardless of its value.
func (q *ProjectQuota) Limited(id uint32, l Limits) (bool, error) {
	d, err := q.table.get(id)
	if err != nil {
		return false, err
	}
	return (l.Bytes == 0 || d.BlockHard > 0) && (l.Inodes == 0 || d.InodeHard > 0), nil
}

// Release clears an id's limits; it is free as soon as its last file is gone, and not before. So release an id first
// and remove its directory then: as long as the directory carries the id, this can be repeated after a crash, while
// the id of a directory that is gone may be another's already.
func (q *ProjectQuota) Release(id uint32) error {
	if err := q.SetLimits(id, Limits{}); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if id >= firstProject && id < q.next {
		q.released = append(q.released, id)
	}
	return nil
}
