package nodeops

import (
	"fmt"
	"os"
	"unsafe"
)

// From linux/fiemap.h.
const (
	getExtents   = 0xC020660B
	extentLast   = 1 << 0
	extentShared = 1 << 13

	extentsAtOnce = 512
)

type extent struct {
	logical, physical, length uint64
	_                         [2]uint64
	flags                     uint32
	_                         [3]uint32
}

type extentMap struct {
	start, length                uint64
	flags, mapped, room, padding uint32
	extents                      [extentsAtOnce]extent
}

// Unshared returns how many bytes of a file's data are in blocks that no other file shares, as of the last sync of its
// file system. It fails on a file system that cannot report that.
func Unshared(f *os.File) (bytes int64, err error) {
	m := &extentMap{}
	for start := uint64(0); ; {
		m.start, m.length, m.room, m.mapped = start, ^uint64(0)-start, extentsAtOnce, 0
		if err := ioctl(f, getExtents, unsafe.Pointer(m)); err != nil {
			return 0, fmt.Errorf("listing the extents of %s: %w", f.Name(), err)
		}
		for _, e := range m.extents[:m.mapped] {
			if e.flags&extentShared == 0 {
				bytes += int64(e.length) //nolint:gosec // of a file, whose size is an int64
			}
			start = e.logical + e.length
			if e.flags&extentLast != 0 {
				return bytes, nil
			}
		}
		if m.mapped == 0 {
			return bytes, nil
		}
	}
}
