package export

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/crashpoint"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/nodeops/ganesha"
)

// serve mounts a volume, assigns its identity and exports it. It is idempotent.
func (b *Backend) serve(ctx context.Context, v *backend.Volume) error {
	before := b.state(v.ID)
	now := &exportState{nfs: before.nfs, handedOver: before.handedOver, size: before.size, revived: before.revived}
	fault, err := b.export(ctx, v, now)
	if err != nil {
		now.nfs = nil
	}
	if now.fault = errors.Join(err, fault); now.fault != nil {
		now.tries = before.tries + 1
		now.after = time.Now().Add(b.RetryEvery * time.Duration(min(1<<min(now.tries-1, 30), maxBackoffFactor)))
	}
	if now.fault == nil {
		now.size = v.Size
	}
	b.setState(v.ID, now)
	if now.fault != nil && (before.fault == nil || now.fault.Error() != before.fault.Error()) {
		b.Log.Error("a volume is not served correctly", "volume", v.ID, "exported", now.nfs != nil, "error", now.fault)
	}
	return err
}

// export does the work of serve. fault is a problem with which clients can still use the volume.
func (b *Backend) export(ctx context.Context, v *backend.Volume, now *exportState) (fault, err error) {
	settings, top, err := b.settings(v.Labels)
	if err != nil {
		return nil, err
	}
	if err := exportable(v); err != nil {
		return nil, err
	}
	m, err := b.ensureMount(ctx, v, now)
	if err != nil {
		return nil, explain(err)
	}
	crashpoint.Here(crashpoint.ExportMounted)
	known, ok := b.ledger.find(v.ID)
	if !ok {
		if err := b.prepareTop(v, now, &top, m.Target); err != nil {
			return nil, explain(err)
		}
		if known, err = b.ledger.assign(v); err != nil {
			return nil, err
		}
	}
	crashpoint.Here(crashpoint.ExportRecorded)
	if fault = b.grow(ctx, v, m); fault != nil && now.size == 0 {
		now.size = sizeOn(m, v)
	}
	if now.nfs != nil {
		return fault, nil
	}
	now.handedOver = true
	if err := b.put(ctx, settings.export(v.ID, known, m.Target)); err != nil {
		return nil, explain(fmt.Errorf("export %d: %w", known.ID, err))
	}
	crashpoint.Here(crashpoint.ExportPut)
	now.nfs = &backend.NFS{Port: b.Port, Path: PathOf(v.ID)}
	return fault, nil
}

// prepareTop prepares the top directory of a volume that has no export yet. A volume that has content and is no copy was
// exported before, as one from the trash, and its users may have changed the directory.
func (b *Backend) prepareTop(v *backend.Volume, now *exportState, top *top, dir string) error {
	if now.revived {
		return nil
	}
	if v.Source == nil {
		names, err := os.ReadDir(dir)
		if err != nil || slices.ContainsFunc(names, func(e os.DirEntry) bool { return e.Name() != "lost+found" }) {
			return err
		}
	}
	return top.prepare(dir)
}

// answerLimit is how long the exporter may take for one export, including its restarts.
const answerLimit = time.Minute

func (b *Backend) put(ctx context.Context, e ganesha.Export) error {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	return b.Exporter.Put(ctx, e)
}

// endExport ends the export of a volume.
func (b *Backend) endExport(ctx context.Context, id uint16) error {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	return b.Exporter.Remove(ctx, id)
}

// ensureMount returns the volume's mount. If the mount was lost, the export ends before the volume is mounted again:
// the exporter still has the lost mount open, and clients must not get the directory below the mount point.
func (b *Backend) ensureMount(ctx context.Context, v *backend.Volume, now *exportState) (*nodeops.Mount, error) {
	m, err := b.mounted(ctx, v)
	if err != nil || m != nil {
		return m, err
	}
	if known, ok := b.ledger.find(v.ID); ok && now.handedOver {
		if err := b.endExport(ctx, known.ID); err != nil {
			return nil, fmt.Errorf("ending export %d of a lost mount: %w", known.ID, err)
		}
	}
	now.nfs, now.handedOver = nil, false
	return b.mount(ctx, v)
}

// exportable fails for volumes that clients cannot mount.
func exportable(v *backend.Volume) error {
	switch {
	case v.Mode == backend.Block:
		return fmt.Errorf("%w: a volume of mode %s cannot be exported; only file systems can", backend.ErrInvalid, v.Mode)
	case v.Access.Image == "" && v.Access.Directory == "":
		return fmt.Errorf("%w: %s", backend.ErrPrecondition, v.Condition.Message)
	}
	return nil
}

// explain wraps an error of the host in a sentinel of backend.
func explain(err error) error {
	switch {
	case errors.Is(err, nodeops.ErrNoLoop):
		return fmt.Errorf("%w: %w; delete volumes, raise maxExports of the NFSServer, which allocates it another set of loop devices for each 256, or use another server", backend.ErrExhausted, err)
	case errors.Is(err, nodeops.ErrDamaged):
		return fmt.Errorf("%w: %w", backend.ErrPrecondition, err)
	case backend.CodeOf(err) != backend.CodeUnavailable:
		return err
	}
	return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
}

// prepare sets owner and mode of a new volume's root directory according to its labels.
func (t *top) prepare(dir string) error {
	if t.gid != nil {
		if err := os.Lchown(dir, -1, int(*t.gid)); err != nil {
			return err
		}
	}
	if t.mode != nil {
		return unix.Chmod(dir, *t.mode) // after chown, which clears setuid and setgid
	}
	return nil
}

// grow grows the file system of an image to the size of the image, and reports other problems. Until then clients have
// the present size.
func (b *Backend) grow(ctx context.Context, v *backend.Volume, m *nodeops.Mount) error {
	switch {
	case m.ReadOnly:
		return fmt.Errorf("%w: volume %s cannot be written: its file system had an error, which is in the kernel's log; restart the server, or restore the volume from a snapshot", backend.ErrPrecondition, v.ID)
	case v.Access.Image == "" || v.FSSize == v.Size:
		return nil
	}
	device := nodeops.LoopUnder(m)
	err := nodeops.GrowMounted(ctx, device, m.Target, 0) // no cluster has it
	switch {
	case v.FSType == "ext4" && errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: volume %s has %s, but its ext4 cannot grow to that while it is mounted; it grows at the next start of the server: delete its pod when its clients can wait that long: %w", backend.ErrPrecondition, v.ID, backend.Readable(v.Size), err)
	case err != nil:
		return fmt.Errorf("%w: volume %s has %s, but not all of it can be used: %w", backend.ErrPrecondition, v.ID, backend.Readable(v.Size), err)
	}
	crashpoint.Here(crashpoint.ExportGrown)
	return nil
}

// sizeOn returns the size of the volume, or that of its file system if it is smaller.
func sizeOn(m *nodeops.Mount, v *backend.Volume) int64 {
	if v.FSType == "ext4" {
		if size, err := nodeops.Ext4Size(nodeops.LoopUnder(m)); err == nil {
			return size
		}
	}
	return v.FSSize
}
