package local

import (
	"fmt"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// The file system of a pool may hold a number of files only, as ext4 does. When they run out, no entry can be made.

const (
	// entryInodes is what an entry itself takes: its directory, its metadata, once more while that is replaced, and the
	// top of what is in it.
	entryInodes = 4
	// sparesInodes is the part of its files, one of so many, that a pool keeps free of trash.
	sparesInodes = 200
)

// inodes is how many files must be free for what is to be built; growth takes none.
func (r *record) inodes() int64 {
	if r.meta == nil {
		return 0
	}
	return entryInodes + r.meta.copies
}

func lacksInodes(usage nodeops.FSUsage, need int64) bool {
	return usage.Inodes > 0 && usage.InodesFree < need
}

// keptInodes is what all of the trash would give.
func (p *pool) keptInodes() (sum int64) {
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
	return fmt.Errorf("%w: %s needs %d files of the file system of pool %s, %d of %d are free; delete volumes, snapshots or other files there",
		backend.ErrExhausted, r.id, r.inodes(), p.Name, usage.InodesFree, usage.Inodes)
}
