package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Hierarchies returns the mount points of all cgroup hierarchies: one on a machine with cgroup v2, many with v1.
func Hierarchies() ([]string, error) {
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return nil, err
	}
	var points []string
	for _, m := range mounts {
		points = append(points, m.Mountpoint)
	}
	if len(points) == 0 {
		return nil, errors.New("no cgroup hierarchy is mounted; mount one at /sys/fs/cgroup")
	}
	return points, nil
}

// MakeCgroup makes the group in every hierarchy.
func MakeCgroup(name string) error {
	points, err := Hierarchies()
	if err != nil {
		return err
	}
	for _, point := range points {
		dir := point
		for part := range strings.SplitSeq(name, "/") {
			parent := dir
			dir = filepath.Join(parent, part)
			if len(points) == 1 {
				if err := delegate(parent); err != nil {
					return err
				}
			}
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
			if err := inheritCpuset(parent, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// CPUTime is what the processes of a group, and of those below it, have spent of the processors.
func CPUTime(name string) (time.Duration, error) {
	points, err := Hierarchies()
	if err != nil {
		return 0, err
	}
	for _, point := range points {
		if text, err := os.ReadFile(filepath.Join(point, name, "cpuacct.usage")); err == nil {
			spent, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
			return time.Duration(spent), err
		}
		if text, err := os.ReadFile(filepath.Join(point, name, "cpu.stat")); err == nil && strings.HasPrefix(string(text), "usage_usec ") { // v2
			spent, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
			return time.Duration(spent) * time.Microsecond, err
		}
	}
	return 0, fmt.Errorf("no hierarchy counts the time of group %s", name)
}

// delegate gives the children of a v2 group every controller that the group has; the kubelet wants them all.
func delegate(dir string) error {
	controllers, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // v1 has a hierarchy for each
	}
	if err != nil {
		return err
	}
	for controller := range strings.FieldsSeq(string(controllers)) {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0o644); err != nil {
			return fmt.Errorf("give controller %s to the groups in %s: %w", controller, dir, err)
		}
	}
	return nil
}

// inheritCpuset gives a v1 cpuset its parent's processors and memory: a new one has none and takes no process.
func inheritCpuset(parent, dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "cgroup.controllers")); err == nil {
		return nil // v2 inherits by itself
	}
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(parent, file))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, file), value, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// WeighCgroup lets all that is in the group together have as much processor time as a number of processes that are in
// none. Without it a whole cluster has as much as one of them, and a kubelet beside a few compilers misses its times.
func WeighCgroup(name string, processes int) error {
	points, err := Hierarchies()
	if err != nil {
		return err
	}
	for _, point := range points {
		for file, ofOne := range map[string]int{"cpu.shares": 1024, "cpu.weight": 100} { // v1, v2
			path := filepath.Join(point, name, file)
			if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
				continue // the hierarchy is not that of processors
			}
			if err := os.WriteFile(path, []byte(strconv.Itoa(ofOne*processes)), 0o644); err != nil {
				return fmt.Errorf("weigh the cgroup: %w", err)
			}
		}
	}
	return nil
}

// JoinCgroup moves a process into the group in every hierarchy.
func JoinCgroup(name string, pid int) error {
	points, err := Hierarchies()
	if err != nil {
		return err
	}
	for _, point := range points {
		file := filepath.Join(point, name, "cgroup.procs")
		if err := os.WriteFile(file, []byte(strconv.Itoa(pid)), 0o644); err != nil {
			return fmt.Errorf("join the cgroup: %w", err)
		}
	}
	return nil
}

// CgroupProcesses returns the processes in the group and beneath it, in any hierarchy.
func CgroupProcesses(name string) ([]int, error) {
	dirs, err := cgroupDirs(name)
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, dir := range dirs {
		data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			continue // gone since it was listed
		}
		for field := range strings.FieldsSeq(string(data)) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// cgroupDirs returns the group's directories in all hierarchies, the deepest first.
func cgroupDirs(name string) ([]string, error) {
	points, err := Hierarchies()
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, point := range points {
		_ = filepath.WalkDir(filepath.Join(point, name), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil // groups vanish while they are walked
		})
	}
	slices.Reverse(dirs)
	return dirs, nil
}

// RemoveCgroup kills every process in the group and beneath it, and removes the group from every hierarchy. A process
// that joins during the removal ends too, and the kernel releases a group a moment after its last process: so both are tried
// together until the group is gone.
func RemoveCgroup(ctx context.Context, name string) error {
	if name == "" || strings.HasPrefix(name, ".") {
		return fmt.Errorf("%q is no cgroup to remove", name)
	}
	return Until(ctx, time.Minute, func() error {
		pids, err := CgroupProcesses(name)
		if err != nil {
			return err
		}
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		if err := removeDirs(name); err != nil {
			return fmt.Errorf("processes %v of cgroup %s had SIGKILL: %w", pids, name, err)
		}
		return nil
	})
}

func removeDirs(name string) error {
	dirs, err := cgroupDirs(name)
	if err != nil {
		return err
	}
	var errs []error
	for _, dir := range dirs {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
