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

// The functions below ask the kernel for the device of a mount or node. The source of a mount and the name of a node
// are arbitrary: a tmpfs may have the source /dev/loop7.

var (
	loopName   = regexp.MustCompile(`^loop[0-9]+$`)
	loopNumber = regexp.MustCompile(`^7:[0-9]{1,10}$`) // LOOP_MAJOR
)

// loopByNumber returns the loop device of a major:minor. It returns "" if the kernel has no such device, or its node in
// /dev belongs to another device.
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

// LoopUnder returns the loop device of a mount's file system; "" if there is none or it cannot be determined.
func LoopUnder(m *Mount) string { return loopByNumber(numberUnder(m)) }

// numberUnder returns the major:minor of the only device of a mount's file system, or "".
func numberUnder(m *Mount) string {
	if m.FSType == "btrfs" {
		return numberUnderBtrfs(m)
	}
	return m.Device
}

// numberUnderBtrfs identifies the file system by its UUID: the mount table does not have the device of a btrfs.
func numberUnderBtrfs(m *Mount) string {
	root, err := openShown(m)
	if root == nil || err != nil {
		return ""
	}
	defer root.Close()
	is, err := btrfsInfo(root)
	if err != nil {
		return ""
	}
	return is.device
}

// btrfs describes a btrfs.
type btrfs struct {
	dir           string // in sysfs
	devices, last uint64 // number of devices, and the highest device id
	device        string // major:minor, if there is only one
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

// isOfMount returns whether a path, relative to an open directory, leads to that mount; false also after an error.
func isOfMount(dir int, path string, m *Mount) bool {
	is, _ := leadsTo(dir, path, m)
	return is
}

// leadsTo is isOfMount with the error.
func leadsTo(dir int, path string, m *Mount) (bool, error) {
	var st unix.Statx_t
	flags := unix.AT_SYMLINK_NOFOLLOW
	if path == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	if err := unix.Statx(dir, path, flags, unix.STATX_MNT_ID, &st); err != nil {
		return false, &os.PathError{Op: "stat", Path: m.Target, Err: err}
	}
	return st.Mask&unix.STATX_MNT_ID != 0 && strconv.FormatUint(st.Mnt_id, 10) == m.ID, nil
}

// LoopNode returns the loop device whose node is bind-mounted; "" if it is none, or covered by another mount.
func LoopNode(m *Mount) string { return loopByNumber(numberOfNode(m, loopName)) }

// isOfDev returns whether a mount shows something of /dev. What pods mount from their volumes may have any name, be a node
// that they have made, or not answer.
func isOfDev(m *Mount) bool {
	var st unix.Stat_t
	return unix.Stat("/dev", &st) == nil && m.Device == fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
}

// numberOfNode returns the major:minor of a bind-mounted device node.
func numberOfNode(m *Mount, name *regexp.Regexp) string {
	var st unix.Stat_t
	if !name.MatchString(filepath.Base(m.Root)) || !isOfDev(m) || unix.Lstat(m.Target, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return ""
	}
	if !isOfMount(unix.AT_FDCWD, m.Target, m) {
		return ""
	}
	return fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
}

// MayUse returns what says whether a mount may use an attached device. It also compares names: a wrong match only means that a
// device is not detached.
func MayUse(device string) func(Mount) bool {
	number := DeviceNumber(device)
	return func(m Mount) bool {
		named := filepath.Base(m.Root) == filepath.Base(device) && m.Target != device && isOfDev(&m)
		return named || m.Source == device || number != "" && (numberUnder(&m) == number || numberOfNode(&m, attachedName) == number)
	}
}

// IsAttached returns whether a device is attached to this file; false if it cannot be queried.
func IsAttached(device, image string) bool {
	at, err := FileAt(image)
	if err != nil {
		return false
	}
	of, err := LoopFile(device)
	return err == nil && of == at
}

// inUseByNode returns whether the node of a device is mounted somewhere: its users must not see the image of another
// volume, even if the device is not attached now.
func inUseByNode() (func(device string) bool, error) {
	mounts, err := Mounts()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, m := range mounts {
		if name := filepath.Base(m.Root); loopName.MatchString(name) && m.Target != "/dev/"+name && isOfDev(&m) {
			names = append(names, name)
		}
	}
	return func(device string) bool { return slices.Contains(names, filepath.Base(device)) }, nil
}
