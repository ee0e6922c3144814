package nodeops

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Host gives access to the host's mount namespace, which differs from that of a container.
type Host struct {
	Proc string // /proc directory of a process on the host, such as /host/proc/1; empty if this process is one
}

func (h Host) proc() string { return cmp.Or(h.Proc, "/proc/self") }

// NotMounted returns why nothing may be initialized in a directory: the host's fstab has a file system there that is
// not mounted, or require demands another file system than the root's. It returns "" if all is mounted.
func (h Host) NotMounted(dir string, require bool) (why string, err error) {
	v, err := h.view(dir)
	if err != nil {
		return "", err
	}
	points, err := h.fstab()
	if err != nil {
		return "", err
	}
	for _, point := range points {
		at := h.resolve(point)
		if at == "/" || !isWithin(v.place, at) {
			continue
		}
		if m := topmost(v.mounts, at); m == nil || m.FSType == "autofs" {
			return fmt.Sprintf("/etc/fstab of the host mounts a file system at %s, and nothing is mounted there; mount it", point), nil
		}
	}
	switch {
	case v.hidden():
		return fmt.Sprintf("the host has %s mounted at %s, and this process sees another file system there", v.over.Source, v.over.Target), nil
	case require && v.seen == mountContaining(v.mounts, "/").Device:
		return "requireMount is set, and it is on the root file system: its own file system is not mounted; mount it, or leave requireMount out", nil
	}
	return "", nil
}

// hostView is what the host and this process see at one path.
type hostView struct {
	place  string  // the directory's path on the host, without symlinks
	mounts []Mount // of the host
	over   Mount   // the host's mount that contains the path
	seen   string  // device of the mount that contains the path in this process
}

// hidden returns whether this process sees another file system than the host: the host mounted it later, or has
// unmounted it.
func (v *hostView) hidden() bool { return v.over.Device != v.seen }

func (h Host) view(dir string) (*hostView, error) {
	table, err := os.ReadFile(filepath.Join(h.proc(), "mountinfo"))
	if err != nil {
		return nil, fmt.Errorf("the mounts of the host: %w", err)
	}
	v := &hostView{place: h.resolve(dir), mounts: parseMounts(string(table))}
	v.over = mountContaining(v.mounts, v.place)
	v.seen, err = mountDevice(dir)
	return v, err
}

// fstab returns the mount points in the host's fstab. Not every kernel lets a container follow the root of a process on
// the host, so the host's /etc may be mounted beside its /proc.
func (h Host) fstab() (points []string, err error) {
	etc := filepath.Join(h.proc(), "root/etc")
	if beside := filepath.Join(h.Proc, "../../etc"); h.Proc != "" && isDirectory(beside) {
		etc = beside
	}
	table, err := os.ReadFile(filepath.Join(etc, "fstab"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the host's /etc/fstab: %w", err)
	}
	return mountPoints(string(table)), nil
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// mountPoints parses fstab(5).
func mountPoints(table string) (points []string) {
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) < 3 || strings.HasPrefix(fields[0], "#") || fields[2] == "swap" {
			continue
		}
		if point := unescape(fields[1]); filepath.IsAbs(point) {
			points = append(points, filepath.Clean(point))
		}
	}
	return points
}

// resolve follows the host's symlinks in a path. A path that does not exist is returned unchanged.
func (h Host) resolve(path string) string {
	path = filepath.Clean(path)
	root, err := os.Open(filepath.Join(h.proc(), "root"))
	if err != nil {
		return path
	}
	defer root.Close()
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT}
	fd, err := unix.Openat2(int(root.Fd()), "."+path, &how)
	if err != nil {
		return path
	}
	defer unix.Close(fd)
	resolved, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil || !filepath.IsAbs(resolved) {
		return path
	}
	return resolved
}

// mountDevice returns the device of the mount that contains a directory in this process. The st_dev of the directory
// differs from it on btrfs, where each subvolume has its own.
func mountDevice(dir string) (string, error) {
	mounts, err := Mounts()
	if err != nil {
		return "", err
	}
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, dir, 0, unix.STATX_MNT_ID, &st); err != nil {
		return "", fmt.Errorf("determining the mount of %s: %w", dir, err)
	}
	if st.Mask&unix.STATX_MNT_ID != 0 {
		for _, m := range mounts {
			if m.ID == strconv.FormatUint(st.Mnt_id, 10) {
				return m.Device, nil
			}
		}
	}
	resolved, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", err
	}
	return mountContaining(mounts, resolved).Device, nil
}

// mountContaining returns the mount that contains a path.
func mountContaining(mounts []Mount, path string) (over Mount) {
	for _, m := range mounts {
		if isWithin(path, m.Target) && len(m.Target) >= len(over.Target) {
			over = m
		}
	}
	return over
}

// topmost returns the last mount exactly at target, or nil.
func topmost(mounts []Mount, target string) (top *Mount) {
	for i := range mounts {
		if mounts[i].Target == target {
			top = &mounts[i]
		}
	}
	return top
}

// isWithin returns whether a path is dir or below it.
func isWithin(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}
