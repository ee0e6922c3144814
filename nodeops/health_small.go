package nodeops

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"unsafe"
)

// describeSmall describes how much smaller than its device a file system is; "" if it uses all that its type can use.
func describeSmall(root *os.File, m *Mount) string {
	device := m.Device
	if m.FSType == "btrfs" {
		device, _ = btrfsBytes(root)
	}
	const sector, slack = 512, 1 << 20
	// In this order a file system that is being grown does not seem too small: its device grows first.
	size := counter(filepath.Join("/sys/dev/block", device), "size") * sector
	if _, is := growing.Load("/dev/" + deviceName(device)); is {
		return ""
	}
	has := fsBytes(root, m)
	if has == 0 || size-has < slack {
		return ""
	}
	return fmt.Sprintf("the %s at %s takes %s of %s: it could not be grown", m.FSType, m.Target, mebibytes(has), mebibytes(size))
}

// mebibytes writes bytes for a message, rounded up.
func mebibytes(bytes int64) string { return fmt.Sprint((bytes+1<<20-1)>>20, "Mi") }

// fsBytes returns how many bytes of its device a file system uses, 0 if unknown.
func fsBytes(root *os.File, m *Mount) (bytes int64) {
	switch m.FSType {
	case "ext4":
		return ext4Bytes(deviceName(m.Device))
	case "xfs":
		return xfsBytes(root)
	case "btrfs":
		_, bytes = btrfsBytes(root)
	}
	return bytes
}

// ext4Bytes returns the size of the device if the rest of it cannot be used.
func ext4Bytes(name string) int64 {
	f, err := os.Open("/dev/" + name)
	if err != nil {
		return 0
	}
	defer f.Close()
	has, err := readExt4Head(f)
	if err != nil {
		return 0
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil || !has.growsOn(size) {
		return size
	}
	return has.blocks * has.blockSize
}

func xfsBytes(root *os.File) int64 {
	has, err := xfsOn(root)
	if err != nil {
		return 0
	}
	return int64(has.blockSize) * int64(has.blocks)
}

// xfsGeometry is that of XFS_IOC_FSGEOMETRY_V1.
type xfsGeometry struct {
	blockSize  uint32
	_          [6]uint32
	maxPercent uint32 // of its space that inodes may take
	blocks     uint64
	_          [72]byte
}

func xfsOn(root *os.File) (has xfsGeometry, err error) {
	const geometry = 0x80705864
	err = os.NewSyscallError("XFS_IOC_FSGEOMETRY_V1", ioctl(root, geometry, unsafe.Pointer(&has)))
	return has, err
}

// btrfsBytes is for a btrfs on one device.
func btrfsBytes(root *os.File) (device string, bytes int64) {
	is, err := btrfsInfo(root)
	if err != nil || is.devices != 1 {
		return "", 0
	}
	const devInfo = 0xD000941E // BTRFS_IOC_DEV_INFO
	has := struct {
		id    uint64
		_     [2]uint64
		_     uint64
		bytes uint64
		_     [379]uint64
		_     [1024]byte
	}{id: is.last}
	if err := ioctl(root, devInfo, unsafe.Pointer(&has)); err != nil {
		return "", 0
	}
	return is.device, int64(has.bytes)
}
