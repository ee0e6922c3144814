package local

import (
	"fmt"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// The file system of a pool may have a fixed number of inodes, as ext4 does. When they run out, no entry can be
// created.

const (
	// entryInodes is the number of inodes of an entry: its directory, its metadata, a second metadata file during its
	// replacement, and the root of its content.
	entryInodes = 4
	// sparesInodes is the fraction of a pool's inodes, 1/200, for which trash is removed to keep them free.
	sparesInodes = 200
)

// inodes returns how many inodes must be free to build the entry; growth needs none.
func (r *record) inodes() int64 {
	if r.meta == nil {
		return 0
	}
	return entryInodes + r.meta.copies
}

func lacksInodes(usage nodeops.FSUsage, need int64) bool {
	return usage.Inodes > 0 && usage.InodesFree < need
}

// trashInodes returns the number of inodes that removing all trash would free.
func (p *pool) trashInodes() (sum int64) {
	for _, r := range p.trashed() {
		sum += entryInodes - 1
		if e, err := p.entry(r); err == nil {
			sum += max(0, p.engine.Inodes(e)-1)
			e.Dir.Close()
		}
	}
	return sum
}

func (p *pool) withoutInodes(usage nodeops.FSUsage, r *record) error {
	return fmt.Errorf("%w: %s needs %d inodes of pool %s, where %d of %d are free; delete volumes, snapshots or other files there",
		backend.ErrExhausted, r.id, r.inodes(), p.Name, usage.InodesFree, usage.Inodes)
}
