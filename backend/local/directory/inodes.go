package directory

import "github.com/holdfast-storage/holdfast/backend/local/engine"

// A directory takes its files from those of the whole pool, of which ext4 has a fixed number: one volume without a
// limit could take them from all others. Where the spec says none, the limit goes by size, as mkfs.ext4 does it.
const (
	bytesPerInode  = 16 << 10
	smallestInodes = 512
)

// inodeLimit is 0 for any number.
func inodeLimit(c *engine.Content) uint64 {
	if c.Inodes > 0 || c.InodesLeast == 0 {
		return c.Inodes
	}
	return max(c.InodesLeast, uint64(c.Size)/bytesPerInode)
}

// leastInodes lets a copy hold what its source holds.
func leastInodes(source *engine.Content) uint64 {
	if source == nil {
		return smallestInodes
	}
	limit := inodeLimit(source)
	if limit == 0 {
		return 0 // the source has no limit either
	}
	return max(limit, smallestInodes)
}
