package nodeops

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Of linux/btrfs.h.
const (
	quotaControl = 0xC0109428
	qgroupCreate = 0x4010942A
	qgroupLimit  = 0x8030942B
	rescanStart  = 0x4040942C
	rescanWait   = 0x942E
	syncBtrfs    = 0x9408

	enableQuota     = 1
	limitReferenced = 1 << 0
)

// EnableBtrfsQuota switches quotas on where they are off, and waits until all that is there is counted. Subvolumes
// that exist get their quota groups by it.
func EnableBtrfsQuota(ctx context.Context, path string) error {
	root, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	enable := [2]uint64{enableQuota, 0}
	err = ioctl(root, quotaControl, unsafe.Pointer(&enable))
	if err == nil {
		err = countAlways(root)
	}
	if err != nil {
		root.Close()
		return fmt.Errorf("enabling the quotas of %s: %w", path, err)
	}
	counted := make(chan error, 1)
	go func() { // stays behind when ctx ends, as long as the kernel counts
		defer root.Close()
		counted <- ioctl(root, rescanWait, nil)
	}()
	select {
	case err = <-counted:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("waiting until the usage of %s is counted: %w", path, err)
	}
	return nil
}

// countAlways has the kernel count again what it lost count of, and keep count also when a subvolume with a very large
// tree is removed: from there on no limit would hold until the next counting.
func countAlways(root *os.File) error {
	const deepest = "8"
	dir := qgroupsOf(root)
	err := os.WriteFile(filepath.Join(dir, "drop_subtree_threshold"), []byte(deepest), 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // kernels that lack it always count
		return err
	}
	state, err := os.ReadFile(filepath.Join(dir, "inconsistent"))
	if err != nil || strings.TrimSpace(string(state)) == "0" {
		return nil //nolint:nilerr // kernels before 6.1 do not report it, and are trusted
	}
	var rescan [8]uint64
	err = ioctl(root, rescanStart, unsafe.Pointer(&rescan))
	if errors.Is(err, unix.EINPROGRESS) {
		return nil
	}
	return err
}

// LimitSubvolume limits what a subvolume may hold, counting what it shares with snapshots as its own. Quotas must be
// enabled.
func LimitSubvolume(path string, bytes int64) error {
	err := onSubvolume(path, func(root *os.File, id uint64) error {
		if bytes <= 0 {
			return fmt.Errorf("%d is no limit: it must be positive", bytes)
		}
		limit := [6]uint64{id, limitReferenced, uint64(bytes)}
		return ioctl(root, qgroupLimit, unsafe.Pointer(&limit))
	})
	switch {
	case errors.Is(err, unix.ENOTCONN):
		return fmt.Errorf("limiting subvolume %s: quotas are not enabled on its file system: %w", path, err)
	case err != nil:
		return fmt.Errorf("limiting subvolume %s to %d bytes: %w", path, bytes, err)
	}
	return nil
}

// SubvolumeUsage says what a subvolume holds, as of the last commit of its file system, at most half a minute ago.
func SubvolumeUsage(path string) (used int64, err error) { return countOf(path, "referenced") }

// SubvolumeUnshared says how much of that no other subvolume has.
func SubvolumeUnshared(path string) (bytes int64, err error) { return countOf(path, "exclusive") }

// countOf reads what the quota group of a subvolume counts.
func countOf(path, what string) (bytes int64, err error) {
	err = onSubvolume(path, func(root *os.File, id uint64) error {
		value, err := os.ReadFile(filepath.Join(qgroupsOf(root), fmt.Sprintf("0_%d", id), what))
		if err != nil {
			return fmt.Errorf("it has no quota group; are quotas enabled? %w", err)
		}
		bytes, err = strconv.ParseInt(strings.TrimSpace(string(value)), 10, 64)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("reading the usage of subvolume %s: %w", path, err)
	}
	return bytes, nil
}

// SweepQgroups removes the quota groups of subvolumes that are gone.
func SweepQgroups(path string) error {
	root, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer root.Close()
	return sweepQgroups(root)
}

func sweepQgroups(root *os.File) error {
	groups, err := os.ReadDir(qgroupsOf(root))
	if errors.Is(err, fs.ErrNotExist) { // quotas are not enabled
		return nil
	}
	if err == nil {
		// A subvolume that is being made has its group first. The commit waits until those seen so far are complete;
		// it also brings the counts of what is gone down to 0, which the kernel asks for.
		err = ioctl(root, syncBtrfs, nil)
	}
	if err != nil {
		return fmt.Errorf("listing quota groups: %w", err)
	}
	for _, group := range groups {
		name, ok := strings.CutPrefix(group.Name(), "0_")
		id, err := strconv.ParseUint(name, 10, 64)
		if !ok || err != nil || id < subvolRoot {
			continue
		}
		if err := sweepQgroup(root, id); err != nil {
			return fmt.Errorf("removing quota group 0/%d: %w", id, err)
		}
	}
	return nil
}

func sweepQgroup(root *os.File, id uint64) error {
	if exists, err := subvolumeExists(root, id); err != nil || exists {
		return err
	}
	remove := [2]uint64{0, id}
	err := ioctl(root, qgroupCreate, unsafe.Pointer(&remove))
	if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTCONN) {
		return nil // still counted, removed in between, or quotas were disabled
	}
	return err
}

// subvolumeExists also says yes of one that was deleted, until its space is given back.
func subvolumeExists(root *os.File, id uint64) (bool, error) {
	found, err := searchRoots(root, id, rootItem)
	return len(found) > 0, err
}

// removesQgroups says whether the kernel removes a quota group with its subvolume. That depends on its version only.
func removesQgroups() bool {
	var u unix.Utsname
	var major, minor int
	if err := unix.Uname(&u); err != nil {
		return false
	}
	if _, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor); err != nil {
		return false
	}
	return major > 6 || major == 6 && minor >= 11
}
