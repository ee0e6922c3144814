//go:build ceph

package cephfs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/ceph/go-ceph/cephfs/admin"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/crashpoint"
)

// The manager of the cluster copies snapshots into new subvolumes, file by file, also while no caller waits. A volume is
// recorded as copying until that is done; the process that serves the pool then completes it.

// How often the manager is asked about a copy: soon at first, for small ones.
const (
	soonest = 20 * time.Millisecond
	latest  = 2 * time.Second
)

// errDeleted ends a copy whose volume was deleted.
var errDeleted = errors.New("the volume was deleted while it was copied")

// temporary is the name of the snapshot that is taken to copy a volume. No snapshot of a user has a point in its name.
func temporary(target string) string { return "holdfast-copy." + target }

// beginCopy has the manager copy a snapshot, or the volume as it is now.
func (p *pool) beginCopy(ctx context.Context, m *meta, from *entry) (name string, err error) {
	name, done, err := p.begin(ctx, m)
	if err != nil {
		return "", err
	}
	defer done()
	m.State = copying
	crashpoint.Here(crashpoint.BuildBegun)
	if err := p.startCopy(ctx, name, m, from); err != nil {
		return "", errors.Join(err, p.abandon(ctx, name, m))
	}
	return name, nil
}

func (p *pool) startCopy(ctx context.Context, name string, m *meta, from *entry) error {
	if m.Copy.Temporary {
		m.Copy.Snapshot = temporary(name)
		if err := p.takeSnapshot(ctx, from.name, m.Copy.Snapshot); err != nil {
			return err
		}
		crashpoint.Here(crashpoint.CopyFrozen)
	}
	err := p.manage(ctx, fmt.Sprintf("copying snapshot %s of %s into subvolume %s", m.Copy.Snapshot, from.name, name), func(a *admin.FSAdmin) error {
		return a.CloneSubVolumeSnapshot(p.in.FileSystem, p.Group, from.name, m.Copy.Snapshot, name, &admin.CloneOptions{TargetGroup: p.Group})
	})
	if err != nil {
		return err
	}
	if err := p.record(ctx, name, m); err != nil {
		return err
	}
	crashpoint.Here(crashpoint.CopyBegun)
	return p.touch(ctx, "completing the record of "+name, func(g *group) error { return g.unset(g.dir, buildingAttr+name) })
}

// finishCopy waits for the manager and completes the volume. When it fails for now, the copy goes on, and is completed by a
// repeat or by the maintenance of the pool.
func (p *pool) finishCopy(ctx context.Context, name string, m *meta, deleted func() bool) (*backend.Volume, error) {
	done := *m
	err := p.awaitCopy(ctx, name, m, deleted)
	if err == nil {
		crashpoint.Here(crashpoint.CopyDone)
		if err = p.resize(ctx, name, m.Size); err == nil {
			err = p.commit(ctx, name, &done)
		}
	}
	var failed *copyError
	switch {
	case errors.As(err, &failed) || errors.Is(err, errDeleted):
		return nil, errors.Join(err, p.discardCopy(ctx, name, m))
	case err != nil:
		return nil, err
	}
	if err := p.endCopy(ctx, name, &done); err != nil {
		p.log.Warn("a volume is copied, but what that needed is not removed yet; retrying", "volume", m.ID, "error", err)
	}
	return p.volume(ctx, &entry{name: name, id: m.ID, volume: &done})
}

// endCopy removes what a copy needed.
func (p *pool) endCopy(ctx context.Context, name string, m *meta) error {
	if m.Copy.Temporary {
		if err := p.dropSnapshot(ctx, m.Copy.Subvolume, m.Copy.Snapshot); err != nil {
			return err
		}
	}
	m.Copy = nil
	return p.record(ctx, name, m)
}

func (p *pool) discardCopy(ctx context.Context, name string, m *meta) error {
	gone := *m
	gone.State = removing
	if err := p.record(ctx, name, &gone); err != nil {
		return err
	}
	return p.destroy(ctx, name, &gone)
}

// copyError is the manager's word that a copy has failed.
type copyError struct {
	state   admin.CloneState
	message string
}

func (e *copyError) Error() string { return fmt.Sprintf("the copy is %s: %s", e.state, e.message) }

func (p *pool) awaitCopy(ctx context.Context, name string, m *meta, deleted func() bool) error {
	for wait := soonest; ; wait = min(2*wait, latest) {
		if deleted() {
			return fmt.Errorf("%w: volume %s: %w", backend.ErrPrecondition, m.ID, errDeleted)
		}
		status, err := p.copyStatus(ctx, name)
		if err != nil && !hasErrno(err, syscall.ETIMEDOUT) {
			return err
		}
		switch {
		case err != nil:
			backend.Progressf(ctx, "the copy was begun, and the manager does not say how far it is: %v", err)
		case status.State == admin.CloneComplete:
			return nil
		case status.State == admin.ClonePending || status.State == admin.CloneInProgress:
			p.reportCopy(ctx, name, m, status)
		default:
			failed := &copyError{state: status.State, message: "the log of the manager says why"}
			if r := status.GetFailure(); r != nil {
				failed.message = r.ErrStr
			}
			return fmt.Errorf("%w: volume %s in pool %s from %s: %w", backend.ErrUnavailable, m.ID, p.Name, m.Source, failed)
		}
		select {
		case <-time.After(wait):
		case <-p.life.Done():
			return fmt.Errorf("%w: volume %s: this process ends; the copy goes on, and the next one completes it", backend.ErrUnavailable, m.ID)
		}
	}
}

func (p *pool) copyStatus(ctx context.Context, name string) (status *admin.CloneStatus, err error) {
	return manage(ctx, p, "asking how far the copy into subvolume "+name+" is", func(a *admin.FSAdmin) (*admin.CloneStatus, error) {
		return a.CloneStatus(p.in.FileSystem, p.Group, name)
	})
}

// reportCopy shows callers how far a copy is: about, since the file system sums up sizes with a delay.
func (p *pool) reportCopy(ctx context.Context, name string, m *meta, status *admin.CloneStatus) {
	bytes, err := look(ctx, p, "measuring "+name, func(g *group) (int64, error) { return g.number(g.base(name), "ceph.dir.rbytes") })
	if err != nil {
		return // the next call of this kind says what is wrong
	}
	backend.Progressf(ctx, "the copy is %s, %s of about %s are there", status.State, backend.Readable(min(bytes, m.Copy.Bytes)), backend.Readable(m.Copy.Bytes))
}

// destroy removes a subvolume that was recorded as one of the pool, with what its copy needed. Snapshots of it stay.
func (p *pool) destroy(ctx context.Context, name string, m *meta) error {
	if m.Copy != nil {
		if err := p.cancelCopy(ctx, name); err != nil {
			return err
		}
	}
	if err := p.removeSubvolume(ctx, name); err != nil {
		return err
	}
	crashpoint.Here(crashpoint.DeletePartly)
	if m.Copy != nil && m.Copy.Temporary {
		if err := p.dropSnapshot(ctx, m.Copy.Subvolume, temporary(name)); err != nil {
			return err
		}
	}
	return p.touch(ctx, "removing the record of "+name, func(g *group) error { return g.unset(g.base(name), volumeAttr) })
}

// cancelCopy returns when the manager does not work on a copy any more.
func (p *pool) cancelCopy(ctx context.Context, name string) error {
	verb := "ending the copy into subvolume " + name
	err := p.manage(ctx, verb, func(a *admin.FSAdmin) error { return a.CancelClone(p.in.FileSystem, p.Group, name) })
	if noCopy(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for wait := soonest; ; wait = min(2*wait, latest) {
		status, err := p.copyStatus(ctx, name)
		switch {
		case noCopy(err):
			return nil
		case err != nil:
			return err
		case status.State != admin.ClonePending && status.State != admin.CloneInProgress:
			return nil
		}
		select {
		case <-time.After(wait):
		case <-p.life.Done():
			return fmt.Errorf("%w: subvolume %s: this process ends; the next one removes it", backend.ErrUnavailable, name)
		}
	}
}

// noCopy says that the manager has no copy to end: the subvolume is not there or complete, or no copy was begun.
func noCopy(err error) bool {
	return hasErrno(err, syscall.ENOENT) || hasErrno(err, syscall.EINVAL) || hasErrno(err, syscall.EOPNOTSUPP)
}

// removeSubvolume removes a subvolume. The manager keeps one that has snapshots, without its files.
func (p *pool) removeSubvolume(ctx context.Context, name string) error {
	snapshots, err := look(ctx, p, "looking for snapshots of "+name, func(g *group) ([]string, error) { return g.snapshots(name) })
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	err = p.manage(ctx, "removing subvolume "+name, func(a *admin.FSAdmin) error {
		return a.RemoveSubVolumeWithFlags(p.in.FileSystem, p.Group, name, admin.SubVolRmFlags{Force: true, RetainSnapshots: len(snapshots) > 0})
	})
	if gone(err) {
		return nil
	}
	return err
}

// createFrom makes a volume from a source, on which no other operation runs while the copy begins. The snapshot is the
// manager's to keep from then on.
func (b *Backend) createFrom(ctx context.Context, p *pool, id backend.ID, spec backend.VolumeSpec, source *backend.Source) (*backend.Volume, error) {
	type begun struct {
		name string
		meta *meta
	}
	key := source.ID
	if source.Kind == backend.SourceSnapshot {
		key = snapshotKey(source.ID)
	}
	missing := fmt.Errorf("%w: %s, the source of %s", backend.ErrNotFound, source, id)
	if key == id { // a volume cannot be copied into itself, and this one does not exist
		return nil, missing
	}
	// What is not there may be waiting for this one, so that its ID is not waited for.
	if from, _, _, err := p.source(ctx, source); err != nil || from == nil {
		return nil, cmp.Or(err, missing)
	}
	c, err := do(ctx, b, key, "copy for "+string(id), func(ctx context.Context) (c begun, err error) {
		from, size, copied, err := p.source(ctx, source)
		if err != nil || from == nil {
			return c, cmp.Or(err, missing)
		}
		if c.meta, err = p.plan(id, spec, source, size); err != nil {
			return c, err
		}
		c.meta.Copy = copied
		c.name, err = p.beginCopy(ctx, c.meta, from)
		return c, err
	})
	if err != nil {
		return nil, err
	}
	return p.finishCopy(ctx, c.name, c.meta, b.deletes(id))
}

// source finds what is copied, and how large it is. nil where it is not there.
func (p *pool) source(ctx context.Context, source *backend.Source) (from *entry, size int64, o *origin, err error) {
	if source.Kind == backend.SourceSnapshot {
		e, s, err := p.findSnapshot(ctx, source.ID)
		switch {
		case err != nil || s == nil:
			return nil, 0, nil, err
		case s.meta == nil:
			return nil, 0, nil, fmt.Errorf("%w: %w", backend.ErrPrecondition, s.damage)
		}
		return e, s.meta.Size, &origin{Subvolume: e.name, Snapshot: string(s.id), Bytes: s.meta.Charge}, nil
	}
	e, err := p.find(ctx, source.ID)
	switch {
	case err != nil || e == nil || e.copies():
		return nil, 0, nil, err
	case e.volume == nil:
		return nil, 0, nil, fmt.Errorf("%w: %w", backend.ErrPrecondition, e.damage)
	case e.volume.Incomplete:
		return nil, 0, nil, backend.LacksContent(e.id)
	}
	f, err := look(ctx, p, "measuring volume "+string(e.id), func(g *group) (facts, error) { return g.facts(e.volume.Path) })
	return e, e.volume.Size, &origin{Subvolume: e.name, Temporary: true, Bytes: f.bytes}, err
}
