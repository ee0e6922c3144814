package nodeops

import (
	"encoding/binary"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// openRoot opens the root directory of the xfs or ext4 of dir, by its file handle: two containers may see different
// directories of a file system, and not its root, but must use the same lock.
func openRoot(dir *os.File) (*os.File, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &st); err != nil {
		return nil, err
	}
	var inode, generation uint32
	switch st.Type {
	case unix.EXT4_SUPER_MAGIC:
		inode = 2 // of any generation
	case unix.XFS_SUPER_MAGIC:
		var err error
		if inode, generation, err = xfsRoot(dir); err != nil {
			return nil, fmt.Errorf("finding the root of the xfs, which takes Linux 5.3: %w", err)
		}
	default:
		return nil, fmt.Errorf("project quotas are used on xfs and ext4 only, and this is %s", typeName(st.Type))
	}
	const inodeAndGeneration = 1 // FILEID_INO32_GEN
	handle := binary.NativeEndian.AppendUint32(nil, inode)
	handle = binary.NativeEndian.AppendUint32(handle, generation)
	fd, err := unix.OpenByHandleAt(int(dir.Fd()), unix.NewFileHandle(inodeAndGeneration, handle), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("opening the root of the file system, which takes CAP_DAC_READ_SEARCH: %w", err)
	}
	return os.NewFile(uintptr(fd), dir.Name()+" (root)"), nil
}

// xfsRoot queries the root inode, which this ioctl has a special number for.
func xfsRoot(dir *os.File) (inode, generation uint32, err error) {
	const (
		bulkstat = 0x8040587F // XFS_IOC_BULKSTAT
		special  = 1 << 1     // XFS_BULK_IREQ_SPECIAL
		theRoot  = 1          // XFS_BULK_IREQ_SPECIAL_ROOT
	)
	request := struct {
		inode                uint64
		flags, in, out, ag   uint32
		_                    [5]uint64
		found                uint64 // start of struct xfs_bulkstat
		size, blocks, xflags uint64
		times                [4]int64
		generation           uint32
		_                    [124]byte
	}{inode: theRoot, flags: special, in: 1}
	if err := ioctl(dir, bulkstat, unsafe.Pointer(&request)); err != nil {
		return 0, 0, err
	}
	if request.out != 1 || request.found>>32 != 0 {
		return 0, 0, fmt.Errorf("%d inodes, the first %d: expected is one with a number of 32 bits", request.out, request.found)
	}
	return uint32(request.found), request.generation, nil
}
