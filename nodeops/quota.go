package nodeops

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Limits are the limits of a quota; zero inodes means no limit of inodes.
type Limits struct {
	Bytes  int64
	Inodes uint64
}

// ProjectQuota allocates the project ids of one xfs or ext4 and limits the space of their files.
//
// The kernel's quota table, which is stored in the file system, is the only record of allocated ids: an id is in use
// while it has a limit or a file. So no id is allocated twice, even by another pool or process or after a reboot.
type ProjectQuota struct {
	table *quotaTable
	root  *os.File // of the file system, regardless of the mount; has the lock

	mu       sync.Mutex
	next     uint32   // start of the next search; all ids below it were in use when last checked
	released []uint32 // below next; perhaps free
}

// The range of allocated ids: above those in /etc/projid, and those that container runtimes and kubelets allocate.
const (
	firstProject = 1 << 30
	lastProject  = math.MaxInt32
)

// OpenProjectQuota opens the project quotas of the file system of dir.
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

// Close closes the file system. Reserved ids stay reserved.
func (q *ProjectQuota) Close() error {
	return errors.Join(q.root.Close(), q.table.dir.Close())
}

// Reserve selects a free id, calls record with it and then sets its limits. Until then no other process reserves ids of
// this file system.
//
// record must store what a later process needs to undo the reservation. Preferably it creates the directory and calls
// SetProject: from then on the id is in use, so that it is not allocated again even if a crash left it without limits.
// If record or setting the limits fails, nothing remains but what record did.
func (q *ProjectQuota) Reserve(l Limits, record func(id uint32) error) (uint32, error) {
	if l.Bytes <= 0 {
		return 0, fmt.Errorf("reserving a quota project id: a limit of %d bytes would not keep the id; it must be positive", l.Bytes)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := uninterrupted(func() error { return unix.Flock(int(q.root.Fd()), unix.LOCK_EX) }); err != nil {
		return 0, fmt.Errorf("locking the quota project ids: %w", err)
	}
	defer func() { _ = unix.Flock(int(q.root.Fd()), unix.LOCK_UN) }() // does not fail for an open file
	id, err := q.pick()
	if err != nil {
		return 0, err
	}
	if err := record(id); err != nil {
		return 0, err
	}
	return id, q.SetLimits(id, l)
}

// pick returns a free id. The number of system calls does not depend on the number of ids in use: the first search of a
// process iterates over them, later ones start where the last one ended.
func (q *ProjectQuota) pick() (uint32, error) {
	if len(q.released) > 0 {
		id := q.released[0]
		q.released = q.released[1:]
		switch d, err := q.table.get(id); {
		case err != nil:
			return 0, err
		case d.free():
			return id, nil
		case !d.limited(): // it still has files
			q.released = append(q.released, id)
		}
	}
	if id, err := q.search(q.next); id != 0 || err != nil {
		return id, err
	}
	if id, err := q.search(firstProject); id != 0 || err != nil {
		return id, err
	}
	return 0, fmt.Errorf("all quota project ids from %d to %d are in use: %w", firstProject, lastProject, unix.ENOSPC)
}

// search returns the first free id from the given one on, or 0.
func (q *ProjectQuota) search(id uint32) (uint32, error) {
	for id <= lastProject {
		d, err := q.table.firstFrom(id)
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

// Usage returns the space and inodes that the files of an id use.
func (q *ProjectQuota) Usage(id uint32) (bytes int64, inodes uint64, err error) {
	d, err := q.table.get(id)
	if err != nil {
		return 0, 0, err
	}
	return int64(d.Space), d.Inodes, nil
}

// Limited returns whether an id has a limit of each requested kind, regardless of its value.
func (q *ProjectQuota) Limited(id uint32, l Limits) (bool, error) {
	d, err := q.table.get(id)
	if err != nil {
		return false, err
	}
	return (l.Bytes == 0 || d.BlockHard > 0) && (l.Inodes == 0 || d.InodeHard > 0), nil
}

// Release removes an id's limits; the id is free once its last file is removed. So release an id first and then remove
// its directory: while the directory has the id, this can be repeated after a crash, but once it is removed the id may
// belong to another directory.
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
