package nodeops

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What follows asks the kernel which device a mount or a node is of. The text of a mount's source, and the name of a node,
// are what their maker has chosen: a tmpfs may call itself /dev/loop7.

var (
	loopName   = regexp.MustCompile(`^loop[0-9]+$`)
	loopNumber = regexp.MustCompile(`^7:[0-9]{1,10}$`) // LOOP_MAJOR
)

// loopByNumber names the loop device of a major:minor; "" if there is none that the kernel calls so, or its node in /dev is
// another's.
func loopByNumber(number string) string {
	if !loopNumber.MatchString(number) {
		return ""
	}
	return deviceByNumber(number, loopName)
}

func deviceByNumber(number string, named *regexp.Regexp) string {
	link, err := os.Readlink("/sys/dev/block/" + number)
	name := filepath.Base(link)
	if err != nil || !named.MatchString(name) || DeviceNumber("/dev/"+name) != number {
		return ""
	}
	return "/dev/" + name
}

// LoopUnder names the loop device that the file system lies on which a mount shows; "" if it lies on none, or on one
// that is not known for sure.
func LoopUnder(m *Mount) string { return loopByNumber(numberUnder(m)) }

// numberUnder is the major:minor of the only device that the file system lies on; "" if there is none.
func numberUnder(m *Mount) string {
	if m.FSType == "btrfs" {
		return numberUnderBtrfs(m)
	}
	return m.Device
}

// numberUnderBtrfs goes by the file system's own identity, since the mount table has no device of a btrfs.
func numberUnderBtrfs(m *Mount) string {
	root, err := os.OpenFile(m.Target, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer root.Close()
	if !isOfMount(int(root.Fd()), "", m) {
		return ""
	}
	is, err := btrfsInfo(root)
	if err != nil {
		return ""
	}
	return is.device
}

// btrfs is what a btrfs says of itself.
type btrfs struct {
	dir           string // in /sys
	devices, last uint64 // how many, and the highest id of one
	device        string // major:minor of the only one
}

func btrfsInfo(root *os.File) (*btrfs, error) {
	const fsInfo = 0x8400941F // BTRFS_IOC_FS_INFO
	info := struct {
		last, devices uint64
		id            [16]byte
		_             [992]byte
	}{}
	if err := ioctl(root, fsInfo, unsafe.Pointer(&info)); err != nil {
		return nil, err
	}
	is := &btrfs{last: info.last, devices: info.devices}
	is.dir = fmt.Sprintf("/sys/fs/btrfs/%x-%x-%x-%x-%x", info.id[:4], info.id[4:6], info.id[6:8], info.id[8:10], info.id[10:])
	entries, err := os.ReadDir(filepath.Join(is.dir, "devices"))
	if err != nil || info.devices != 1 || len(entries) != 1 {
		return is, err
	}
	number, err := os.ReadFile(filepath.Join(is.dir, "devices", entries[0].Name(), "dev"))
	is.device = strings.TrimSpace(string(number))
	return is, err
}

// isOfMount says whether what is at a path, from a directory on, is seen through that mount.
func isOfMount(dir int, path string, m *Mount) bool {
	var st unix.Statx_t
	flags := unix.AT_SYMLINK_NOFOLLOW
	if path == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	err := unix.Statx(dir, path, flags, unix.STATX_MNT_ID, &st)
	return err == nil && st.Mask&unix.STATX_MNT_ID != 0 && strconv.FormatUint(st.Mnt_id, 10) == m.ID
}

// LoopNode names the loop device whose node a mount shows; "" if it shows none, or is covered by another mount. What does
// not bear such a name is not touched: a stranger's mount may hang.
func LoopNode(m *Mount) string { return loopByNumber(numberOfNode(m, loopName)) }

// numberOfNode is the major:minor of the node that a mount shows.
func numberOfNode(m *Mount, name *regexp.Regexp) string {
	var st unix.Stat_t
	if !name.MatchString(filepath.Base(m.Root)) || unix.Lstat(m.Target, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return ""
	}
	if !isOfMount(unix.AT_FDCWD, m.Target, m) {
		return ""
	}
	return fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
}

// MayUse says whether a mount could be a use of an attached device. Unlike the above it goes by names too, since here a mistake
// only means that a device is left alone.
func MayUse(m *Mount, device string) bool {
	named := filepath.Base(m.Root) == filepath.Base(device) && m.Target != device
	return named || m.Source == device || AttachedUnder(m) == device || AttachedNode(m) == device
}

// IsAttached says whether a device is attached to that very file. What cannot be asked is no match.
func IsAttached(device, image string) bool {
	at, err := FileAt(image)
	if err != nil {
		return false
	}
	of, err := LoopFile(device)
	return err == nil && of == at
}

// inUseByNode lists the loop devices whose nodes are mounted somewhere: users of these nodes must not find the image of
// another volume in them, even if they are attached to none now.
func inUseByNode() (func(device string) bool, error) {
	mounts, err := Mounts()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, m := range mounts {
		if name := filepath.Base(m.Root); loopName.MatchString(name) && m.Target != "/dev/"+name {
			names = append(names, name)
		}
	}
	return func(device string) bool { return slices.Contains(names, filepath.Base(device)) }, nil
}
