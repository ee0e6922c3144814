// Package disk provides whole block devices for pools. A device is selected once, formatted if it is empty, mounted by
// its UUID, and later identified by the mark on it.
//
// The selection is recorded on the host, with the UUID of the future file system, before the device is written. So a
// process that is killed at any point can continue, and a missing disk is never replaced by another one, nor by the
// directory below its mount point.
package disk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/crashpoint"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// Host manages the disks of the pools of one host.
type Host struct {
	Dir  string // state directory on this host, such as /var/lib/holdfast
	Node string
	// Cluster returns the ID of the cluster, so that a disk of another cluster is not used. It is called only to select a
	// disk.
	Cluster func(context.Context) (string, error)
	// Attached lists the volumes of other drivers that are attached to this host; nil if there are none.
	Attached func(context.Context) ([]Attached, error)
	Proc     string // as in nodeops.Host, to find the processes that use a device
	Log      *slog.Logger

	devices func() ([]nodeops.Device, error) // replaced in tests
}

// Place returns the directory of a pool that has no path of its own, which is the mount point of its disk.
func (h *Host) Place(pool string) string { return filepath.Join(h.Dir, "pools", pool) }

// Directory makes sure that the directory of a new pool exists; below Dir it is created. It fails for the bare mount
// point of that pool's disk.
func (h *Host) Directory(pool, path string, e backend.PoolExpectation) error {
	r, err := h.recorded(pool)
	if err != nil {
		return err
	}
	if r != nil && path == h.Place(pool) {
		if m, err := nodeops.MountAt(path); err != nil || m == nil {
			return errors.Join(err, h.missing(r, e, "the pool is on a disk (%s) that is not mounted; select it by devices again", r))
		}
	}
	if !strings.HasPrefix(path, h.Dir+"/") || !e.MayBegin() {
		return nil
	}
	return os.MkdirAll(path, 0o755)
}

// missing returns the error about a missing disk, which says what to do.
func (h *Host) missing(r *record, e backend.PoolExpectation, format string, args ...any) error {
	how := fmt.Sprintf("remove %s on node %s", h.file(r.Pool), h.Node)
	if e.Remedy != "" {
		how = "run: " + e.Remedy
	}
	err := fmt.Errorf("%w: "+format+"; or, if it is gone for good with all its data, %s", append(append([]any{backend.ErrUnavailable}, args...), how)...)
	return backend.BecauseOf(backend.NotMounted, err)
}

// Mount mounts the disk of a pool unless it is mounted. It selects a disk only for a new pool.
func (h *Host) Mount(ctx context.Context, pool string, which nodeops.DeviceSelector, e backend.PoolExpectation) error {
	unlock, err := h.lock()
	if err != nil {
		return err
	}
	defer unlock()
	r, err := h.recorded(pool)
	if err != nil {
		return err
	}
	if r == nil {
		return h.choose(ctx, pool, which, e)
	}
	if mounted, err := h.mounted(ctx, r); mounted || err != nil {
		return err
	}
	device, head, err := h.find(r, which)
	switch {
	case err != nil:
		return err
	case device == nil && r.Ready && e.Given == "":
		return h.missing(r, e, "its disk is missing (%s); put it back and it is used again on node %s", r, h.Node)
	case device == nil: // given up, or killed before the disk was written
		if err := h.forget(r); err != nil {
			return err
		}
		return h.choose(ctx, pool, which, e)
	case head.Unfinished && !r.Ready: // killed during mkfs
		if err := nodeops.EraseUnfinishedXFS(device.Path, r.UUID); err != nil {
			return err
		}
		return h.format(ctx, r, device)
	}
	return h.attach(ctx, r, device)
}

// lock prevents another process from selecting disks at the same time.
func (h *Host) lock() (unlock func(), err error) {
	if err := os.MkdirAll(h.records(), 0o700); err != nil {
		return nil, err
	}
	f, err := nodeops.Lock(func(flag int) (*os.File, error) {
		return os.OpenFile(filepath.Join(h.records(), ".lock"), flag|os.O_CREATE, 0o600)
	}, unix.LOCK_EX|unix.LOCK_NB)
	if err != nil {
		return nil, fmt.Errorf("%w: the disks of this host cannot be locked, or another process manages them: %w", backend.ErrUnavailable, err)
	}
	return func() { f.Close() }, nil
}

// mounted returns whether the disk is mounted at its place. It fails if something else is mounted there.
func (h *Host) mounted(ctx context.Context, r *record) (bool, error) {
	place := h.Place(r.Pool)
	m, err := nodeops.MountAt(place)
	if m == nil || err != nil {
		return false, err
	}
	if _, err := os.ReadDir(place); m.FSType == "xfs" && (err != nil || nodeops.DeviceGone(m.Device)) {
		if failed := nodeops.Unmount(ctx, place); failed != nil {
			return false, fmt.Errorf("%w: its disk was removed or failed while in use (%s), and volumes on it are still in use; drain node %s and it is mounted again: %w", backend.ErrUnavailable, r, h.Node, errors.Join(err, failed))
		}
		return false, nil
	}
	all, err := h.list()
	if err != nil {
		return false, err
	}
	for _, d := range all {
		if d.Number != m.Device {
			continue
		}
		if head, err := nodeops.ReadXFSHead(d.Path); err != nil {
			return false, err
		} else if head != nil && head.UUID == r.UUID {
			return true, h.markDisk(r)
		}
	}
	return false, fmt.Errorf("%w: %s is mounted at %s, where its disk belongs (%s); unmount it", backend.ErrUnavailable, m.Source, place, r)
}

// find searches for the disk by its UUID among all eligible devices, even if the selector has changed. A device that
// only has the label of the pool does not count: anyone can write a label.
func (h *Host) find(r *record, which nodeops.DeviceSelector) (device *nodeops.Device, head *nodeops.XFSHead, err error) {
	eligible, named, err := h.eligible(which)
	if err != nil {
		return nil, nil, err
	}
	b, err := h.booted()
	if err != nil {
		h.Log.Warn("a disk without a serial number is not recognized", "pool", r.Pool, "error", err)
	}
	var doubts error
	for _, d := range eligible {
		if len(d.Holders) > 0 || device != nil && device.Number == d.Number {
			continue
		}
		is, err := nodeops.ReadXFSHead(d.Path)
		if err != nil || is == nil || is.UUID != r.UUID { // a disk that cannot be read counts as missing
			continue
		}
		isNamed := slices.ContainsFunc(named, func(n nodeops.Device) bool { return n.Number == d.Number })
		if err := r.whyUntrusted(&d, isNamed, b); err != nil {
			h.Log.Warn("a disk has the UUID of a pool's disk and is not used", "pool", r.Pool, "device", d.Path, "reason", err)
			doubts = errors.Join(doubts, err)
			continue
		}
		if device != nil {
			return nil, nil, fmt.Errorf("%w: %s and %s both say they are its disk (UUID %s); remove the copy", backend.ErrUnavailable, device.Path, d.Path, r.UUID)
		}
		device, head = &d, is
	}
	if device == nil && doubts != nil {
		return nil, nil, fmt.Errorf("%w: its disk is missing (%s): %w", backend.ErrUnavailable, r, doubts)
	}
	return device, head, nil
}

// eligible returns the devices of the host and those that the selector names by path; named are those that it names by
// model or path.
func (h *Host) eligible(which nodeops.DeviceSelector) (eligible, named []nodeops.Device, err error) {
	all, err := h.list()
	if err != nil {
		return nil, nil, err
	}
	own := nodeops.DeviceSelector{MinSize: 1}
	if eligible, err = own.Select(all); err != nil {
		return nil, nil, err
	}
	if which.Model != "" {
		if named, err = (nodeops.DeviceSelector{Model: which.Model, Paths: which.Paths}).Select(all); err != nil {
			return nil, nil, err
		}
	}
	if own.Paths = which.Paths; len(which.Paths) > 0 {
		byPath, err := own.Select(all)
		if err != nil {
			return nil, nil, err
		}
		named = append(named, byPath...)
		eligible = append(eligible, byPath...)
	}
	return eligible, named, nil
}

// attach mounts the disk, and unmounts it if it does not have the mark of the pool.
func (h *Host) attach(ctx context.Context, r *record, device *nodeops.Device) error {
	place := h.Place(r.Pool)
	if err := os.MkdirAll(place, 0o755); err != nil {
		return err
	}
	quotas, err := nodeops.MountDisk(ctx, device.Path, place)
	if err != nil {
		return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	crashpoint.Here(crashpoint.DiskMounted)
	m, err := nodeops.MountAt(place)
	if err == nil && (m == nil || m.Device != device.Number) {
		err = fmt.Errorf("%w: %s is now another device; retrying", backend.ErrUnavailable, device.Path)
	}
	if err == nil {
		err = h.markDisk(r)
	}
	if err != nil {
		return errors.Join(err, nodeops.Unmount(context.WithoutCancel(ctx), place))
	}
	h.Log.Info("disk mounted", "pool", r.Pool, "device", device.Path, "uuid", r.UUID, "at", place)
	if !quotas {
		h.Log.Warn("this kernel has no project quotas on xfs: the pool cannot have the engine Directory", "pool", r.Pool)
	}
	return nil
}

// markDisk compares the mark of the mounted disk with the record, and writes it to a new disk.
func (h *Host) markDisk(r *record) error {
	place := h.Place(r.Pool)
	m, err := readMark(place)
	switch {
	case errors.Is(err, os.ErrNotExist) && !r.Ready:
		if err := checkEmpty(place); err != nil {
			return err
		}
		if err := r.write(place); err != nil {
			return err
		}
		crashpoint.Here(crashpoint.DiskMarked)
	case err != nil:
		return fmt.Errorf("%w: the disk does not say which pool it is for: %w; if that file was not removed on purpose, write %s into it", backend.ErrUnavailable, err, r.mark)
	case m.identity() != r.identity():
		return fmt.Errorf("%w: the disk with its UUID says it is that of %s, not of %s; remove it", backend.ErrUnavailable, m, r.mark)
	}
	if r.Ready {
		return nil
	}
	r.Ready = true
	return h.save(r)
}
