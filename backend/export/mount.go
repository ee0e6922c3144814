package export

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/crashpoint"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// target is the mount point of a volume.
func (b *Backend) target(id backend.ID) string { return filepath.Join(b.ExportsDir, string(id)) }

// mounted returns the mount of a volume at its target, or nil. It unmounts anything else there, which is left from an
// earlier volume of the same name.
func (b *Backend) mounted(ctx context.Context, v *backend.Volume) (*nodeops.Mount, error) {
	m, err := nodeops.MountAt(b.target(v.ID))
	if err != nil || m == nil {
		return nil, err
	}
	if ours, err := shows(m, v); err != nil || ours {
		return m, err
	}
	return nil, b.unmount(ctx, v.ID)
}

// mount mounts a volume at its target, where nothing is mounted.
func (b *Backend) mount(ctx context.Context, v *backend.Volume) (*nodeops.Mount, error) {
	target := b.target(v.ID)
	if err := os.Mkdir(target, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if err := b.attach(ctx, v, target); err != nil {
		return nil, err
	}
	m, err := nodeops.MountAt(target)
	if err == nil && m == nil {
		err = fmt.Errorf("%s was unmounted at once by another process", target)
	}
	return m, err
}

func (b *Backend) attach(ctx context.Context, v *backend.Volume, target string) error {
	if v.Access.Directory != "" {
		return nodeops.Bind(ctx, v.Access.Directory, target, false, nil)
	}
	loop, err := nodeops.AttachLoop(ctx, v.Access.Image, nodeops.LoopOptions{Autoclear: true, Among: b.Loops})
	if err != nil {
		return err
	}
	// A mount keeps the device attached. Without one, it is detached here.
	defer loop.Close()
	if err := nodeops.Preen(ctx, loop.Path, v.FSType); err != nil {
		return err
	}
	_, known := b.ledger.find(v.ID)
	if v.Source != nil && !known {
		if err := makeDistinct(ctx, loop.Path, target, v.FSType); err != nil {
			return err
		}
	}
	if v.FSSize != v.Size {
		err := nodeops.GrowUnmounted(ctx, loop.Path, v.FSType)
		switch {
		case err != nil && !known:
			return err
		case err != nil: // clients know the UUID
			b.Log.Error("a volume cannot grow", "volume", v.ID, "error", err)
		}
	}
	return nodeops.MountFS(ctx, loop.Path, target, v.FSType, mountOptions)
}

var mountOptions = []string{"nodev", "nosuid"}

// makeDistinct gives a copy that was never exported another UUID than its source: exporters identify file systems by
// UUID. A mount replays the log first, since the source may have been in use.
func makeDistinct(ctx context.Context, device, target, fsType string) error {
	if fsType != "ext4" && fsType != "xfs" {
		return nil
	}
	if err := nodeops.MountFS(ctx, device, target, fsType, mountOptions); err != nil {
		return err
	}
	if err := await(ctx, busyLimit, func() error { return nodeops.Unmount(ctx, target) }); err != nil {
		return err
	}
	err := nodeops.RenewUUID(ctx, device, fsType)
	crashpoint.Here(crashpoint.ExportRenewed)
	return err
}

// shows returns whether m is a mount of this volume, not of an earlier one of the same name.
func shows(m *nodeops.Mount, v *backend.Volume) (bool, error) {
	if v.Access.Directory != "" {
		own, err := os.Stat(v.Access.Directory)
		if err != nil {
			return false, err
		}
		shown, err := os.Stat(m.Target)
		return err == nil && os.SameFile(own, shown), nil
	}
	devices, err := nodeops.LoopsOf(v.Access.Image)
	return m.Root == "/" && slices.Contains(devices, nodeops.LoopUnder(m)), err
}

// How long files that the exporter has open may keep a volume busy after the end of its export.
const (
	busyLimit = 5 * time.Second
	busyPause = 50 * time.Millisecond
)

// unmount unmounts everything at a volume's target. A busy mount is detached lazily: the file system stays mounted
// until its last file is closed.
func (b *Backend) unmount(ctx context.Context, id backend.ID) error {
	target := b.target(id)
	err := await(ctx, busyLimit, func() error { return nodeops.Unmount(ctx, target) })
	if err != nil {
		b.Log.Warn("unmounting a volume that another process keeps busy", "volume", id, "error", err)
		if err := detach(target); err != nil {
			return err
		}
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		b.Log.Warn("the directory of an export is left", "volume", id, "error", err) // it is harmless
	}
	return nil
}

// detach lazily unmounts all mounts at target.
func detach(target string) error {
	for {
		m, err := nodeops.MountAt(target)
		if err != nil || m == nil {
			return err
		}
		if err := unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("unmounting %s: %w", target, err)
		}
	}
}

// await retries a function until it succeeds or the limit passes: the kernel sends no event when a mount or device is
// no longer busy.
func await(ctx context.Context, limit time.Duration, do func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	pause := time.NewTicker(busyPause)
	defer pause.Stop()
	for {
		err := do()
		if err == nil {
			return nil
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return err
		}
	}
}

// awaitClosed waits until no process has a volume's image open.
func awaitClosed(ctx context.Context, v *backend.Volume) error {
	if v.Access.Image == "" {
		return nil
	}
	return await(ctx, busyLimit, func() error {
		devices, err := nodeops.LoopsOf(v.Access.Image)
		if errors.Is(err, fs.ErrNotExist) || err == nil && len(devices) == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		return fmt.Errorf("%w: volume %s is no longer exported and mounted, but files in it are still open (%s); it is removed when they are closed, retry", backend.ErrBusy, v.ID, strings.Join(devices, ", "))
	})
}

// sweep removes what a killed process left: mounts and identities of deleted volumes, and attached devices that are not
// mounted.
func (b *Backend) sweep(ctx context.Context) error {
	if err := os.MkdirAll(b.ExportsDir, 0o700); err != nil {
		return err
	}
	var err error
	// Paths in the mount table are resolved.
	if b.ExportsDir, err = filepath.EvalSymlinks(b.ExportsDir); err != nil {
		return err
	}
	if err := b.fence(ctx); err != nil {
		return err
	}
	ids, err := b.targets()
	if err != nil {
		return err
	}
	for _, id := range ids {
		if gone, err := b.gone(ctx, id); err != nil {
			return err
		} else if gone {
			if err := b.unmount(ctx, id); err != nil {
				return err
			}
		}
	}
	if _, err := nodeops.ReclaimLoops(ctx, b.Loops); err != nil {
		b.Log.Warn("loop devices that were left attached", "error", err)
	}
	return b.forgetGone(ctx)
}

// targets returns the volumes that have a mount point.
func (b *Backend) targets() (ids []backend.ID, err error) {
	entries, err := os.ReadDir(b.ExportsDir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		id, err := backend.ParseID(e.Name())
		if err != nil {
			return nil, fmt.Errorf("%w: %s holds %s, which is not the mount point of a volume; nothing else may use that directory", backend.ErrInvalid, b.ExportsDir, backend.Quote(e.Name()))
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func (b *Backend) gone(ctx context.Context, id backend.ID) (bool, error) {
	_, err := b.Storage.Get(ctx, id)
	if backend.IsAbsent(err) {
		return true, nil
	}
	return false, err
}

// forgetGone frees the identities of volumes that another program, or a process that was killed, has deleted.
func (b *Backend) forgetGone(ctx context.Context) error {
	for _, id := range b.ledger.ids() {
		gone, err := b.gone(ctx, id)
		if err != nil {
			return err
		}
		if !gone {
			continue
		}
		known, _ := b.ledger.find(id)
		b.Log.Warn("an exported volume no longer exists on disk", "volume", id, "export", known.ID)
		if err := b.endExport(ctx, known.ID); err != nil {
			return err
		}
		if err := b.ledger.retire(id); err != nil {
			b.Log.Warn("its export ID stays in use until the next start", "volume", id, "error", err)
		}
	}
	return nil
}
