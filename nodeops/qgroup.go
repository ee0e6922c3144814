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

// From linux/btrfs.h.
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

// EnableBtrfsQuota enables quotas if they are disabled, and waits until the initial scan is complete. That creates the
// quota groups of existing subvolumes.
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
	go func() { // continues after ctx ends, until the scan is complete
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

// countAlways starts a rescan if the counts are inconsistent, and makes the kernel keep them consistent when a
// subvolume with a very large tree is removed: otherwise no limit would hold until the next rescan.
func countAlways(root *os.File) error {
	const deepest = "8"
	dir := qgroupsOf(root)
	err := os.WriteFile(filepath.Join(dir, "drop_subtree_threshold"), []byte(deepest), 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // older kernels always count
		return err
	}
	state, err := os.ReadFile(filepath.Join(dir, "inconsistent"))
	if err != nil || strings.TrimSpace(string(state)) == "0" {
		return nil //nolint:nilerr // kernels before 6.1 do not report it, and are assumed to be consistent
	}
	var rescan [8]uint64
	err = ioctl(root, rescanStart, unsafe.Pointer(&rescan))
	if errors.Is(err, unix.EINPROGRESS) {
		return nil
	}
	return err
}

// LimitSubvolume limits the size of a subvolume, including blocks that it shares with snapshots. Quotas must be
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

// SubvolumeUsage returns the size of a subvolume as of the last commit of its file system, at most 30 s ago.
func SubvolumeUsage(path string) (used int64, err error) { return countOf(path, "referenced") }

// SubvolumeUnshared returns the size of the blocks that no other subvolume shares.
func SubvolumeUnshared(path string) (bytes int64, err error) { return countOf(path, "exclusive") }

// countOf reads a counter of a subvolume's quota group.
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

// SweepQgroups removes the quota groups of deleted subvolumes.
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
	if errors.Is(err, fs.ErrNotExist) { // quotas are disabled
		return nil
	}
	if err == nil {
		// The quota group of a subvolume under creation exists before the subvolume. The commit waits for those found so far;
		// it also updates the counts of deleted ones to 0, which the kernel requires for the removal.
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
		return nil // still in use, removed concurrently, or quotas were disabled
	}
	return err
}

// subvolumeExists is also true for a deleted subvolume whose space is not freed yet.
func subvolumeExists(root *os.File, id uint64) (bool, error) {
	found, err := searchRoots(root, id, rootItem)
	return len(found) > 0, err
}

// removesQgroups returns whether the kernel removes a quota group with its subvolume, which depends on its version.
func removesQgroups() bool { return isLinux6(11) }
