//go:build ceph

package cephfs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ceph/go-ceph/cephfs"
	"github.com/ceph/go-ceph/cephfs/admin"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/crashpoint"
)

// fsType is the name of the file system in the kernel.
const fsType = "ceph"

// find looks a volume up: the one that users see, or the one that is being copied. nil where there is none.
func (p *pool) find(ctx context.Context, id backend.ID) (*entry, error) {
	return look(ctx, p, "looking for volume "+string(id), func(g *group) (*entry, error) {
		first, err := g.read(string(id))
		if err != nil || first != nil && (first.visible() || first.copies()) {
			return first, err
		}
		all, err := g.of(id)
		if err != nil {
			return nil, err
		}
		for _, e := range all {
			if e.visible() || e.copies() {
				return e, nil
			}
		}
		return nil, nil
	})
}

// copies says that the volume's content is still being copied.
func (e *entry) copies() bool { return e.volume != nil && e.volume.State == copying }

// describe shows an entry as it is recorded.
func (p *pool) describe(e *entry) *backend.Volume {
	v := &backend.Volume{ID: e.id, Pool: p.Name, PoolID: p.id}
	m := e.volume
	if m == nil {
		v.Condition = backend.Abnormal("%v", e.damage)
		return v
	}
	v.Name, v.Size, v.Inodes, v.Labels, v.Source, v.Created, v.OnNodeLoss = m.Name, m.Size, m.Inodes, m.Labels, m.Source, m.Created, m.OnNodeLoss
	v.Mode, v.FSType, v.Provisioning, v.Incomplete = backend.Filesystem, fsType, backend.Thin, m.Incomplete
	return v
}

// volume shows an entry as callers know it.
func (p *pool) volume(ctx context.Context, e *entry) (*backend.Volume, error) {
	v, m := p.describe(e), e.volume
	if m == nil {
		return v, nil
	}
	facts, err := look(ctx, p, "looking at volume "+string(e.id), func(g *group) (facts, error) { return g.facts(m.Path) })
	switch {
	case gone(err):
		v.Condition = backend.Abnormal("its directory %s is gone from file system %s; restore it from a snapshot or backup", m.Path, p.in.FileSystem)
		return v, nil
	case err != nil:
		return nil, err
	}
	v.Access.CephFS = &backend.CephFS{
		Cluster: p.in.ForNodes(), FileSystem: p.in.FileSystem, Path: m.Path,
	}
	v.Used = facts.bytes
	if facts.quota != m.Size && m.Charge == m.Size {
		v.Condition = backend.Abnormal("its quota is %d bytes (0: none) and its size %d: set it with ceph fs subvolume resize %s %s %d --group_name %s", facts.quota, m.Size, p.in.FileSystem, e.name, m.Size, p.Group)
	}
	return v, nil
}

// facts is what the file system says of a volume.
type facts struct{ bytes, quota int64 }

func (g *group) facts(dir string) (f facts, err error) {
	if f.bytes, err = g.number(dir, "ceph.dir.rbytes"); err != nil {
		return f, err
	}
	f.quota, err = g.number(dir, "ceph.quota.max_bytes")
	return f, err
}

// plan says what a volume is going to be, a copy of what has sourceSize bytes or an empty one.
func (p *pool) plan(id backend.ID, spec backend.VolumeSpec, source *backend.Source, sourceSize int64) (*meta, error) {
	refuse := func(format string, args ...any) (*meta, error) {
		return nil, fmt.Errorf("%w: volume %s in pool %s: engine CephFS "+format, append([]any{backend.ErrInvalid, id, p.Name}, args...)...)
	}
	switch {
	case spec.Pool != "" && spec.Pool != p.Name:
		return nil, fmt.Errorf("%w pool %s: the pool here is %s", backend.ErrInvalid, backend.Quote(spec.Pool), p.Name)
	case cmp.Or(spec.Mode, backend.Filesystem) != backend.Filesystem:
		return refuse("cannot serve volumes of mode %s; use engine RBD", spec.Mode)
	case spec.FSType != "" && spec.FSType != fsType:
		return refuse("cannot make %s", backend.Quote(spec.FSType))
	case spec.Provisioning == backend.Thick:
		return refuse("cannot take space in advance (provisioning Thick)")
	case len(spec.MkfsOptions) > 0:
		return refuse("makes no file system and cannot take mkfsOptions %v", spec.MkfsOptions)
	}
	if source != nil && spec.Size.Required == 0 {
		spec.Size.Required = sourceSize // a copy is as large as its source
	}
	size, err := spec.Size.Choose(max(backend.SizeUnit, sourceSize), backend.SizeUnit)
	if err != nil {
		return nil, fmt.Errorf("volume %s in pool %s: %w", id, p.Name, err)
	}
	return &meta{
		Version: version, ID: id, Name: spec.Name, Created: time.Now().UTC(), Size: size, Charge: size, Inodes: spec.Inodes,
		Labels: spec.Labels, Source: source, OnNodeLoss: spec.OnNodeLoss, Ephemeral: spec.Ephemeral,
		Incomplete: spec.Incomplete,
	}, nil
}

// create makes an empty volume.
func (p *pool) create(ctx context.Context, id backend.ID, spec backend.VolumeSpec) (*backend.Volume, error) {
	m, err := p.plan(id, spec, nil, 0)
	if err != nil {
		return nil, err
	}
	name, done, err := p.begin(ctx, m)
	if err != nil {
		return nil, err
	}
	defer done()
	crashpoint.Here(crashpoint.BuildBegun)
	err = p.manage(ctx, "making subvolume "+name, func(a *admin.FSAdmin) error {
		return a.CreateSubVolume(p.in.FileSystem, p.Group, name, &admin.SubVolumeOptions{Size: admin.ByteCount(m.Size), Mode: 0o755, PoolLayout: p.in.DataPool, NamespaceIsolated: true})
	})
	if err == nil {
		err = p.commit(ctx, name, m)
	}
	if err != nil {
		return nil, errors.Join(err, p.abandon(ctx, name, m))
	}
	return p.volume(ctx, &entry{name: name, id: id, volume: m})
}

// begin promises the room of a volume and records that it is being made, under the name of its subvolume. The caller is
// done when it is made, or when it is not.
func (p *pool) begin(ctx context.Context, m *meta) (name string, done func(), err error) {
	made, err := p.await(ctx, p.making)
	if err != nil {
		return "", nil, err
	}
	defer func() {
		if err != nil {
			made()
		}
	}()
	if err := p.clear(ctx, m.ID); err != nil {
		return "", nil, fmt.Errorf("removing the remains of an earlier attempt: %w", err)
	}
	err = p.promise(ctx, m.ID, m.Charge, func() (err error) {
		name, err = look(ctx, p, "looking for a name", func(g *group) (string, error) { return g.freeName(m.ID) })
		if err != nil {
			return err
		}
		p.makes(name, true)
		return p.touch(ctx, "recording that volume "+string(m.ID)+" is being made", func(g *group) error { return g.set(g.dir, buildingAttr+name, m) })
	})
	if err != nil {
		p.makes(name, false)
		return "", nil, err
	}
	return name, func() {
		p.makes(name, false)
		made()
	}, nil
}

// makes notes which subvolumes operations of this process make.
func (p *pool) makes(name string, now bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now {
		p.building[name] = true
	} else {
		delete(p.building, name)
	}
}

// commit completes a subvolume that holds what it shall, and records last that it is a volume.
func (p *pool) commit(ctx context.Context, name string, m *meta) error {
	at, err := manage(ctx, p, "asking for the path of subvolume "+name, func(a *admin.FSAdmin) (string, error) {
		return a.SubVolumePath(p.in.FileSystem, p.Group, name)
	})
	if err != nil {
		return err
	}
	m.Path = at
	if m.Inodes > 0 {
		err := p.touch(ctx, "limiting the files of "+name, func(g *group) error {
			return g.fs.SetXattr(m.Path, "ceph.quota.max_files", fmt.Append(nil, m.Inodes), cephfs.XattrDefault)
		})
		if err != nil {
			return err
		}
	}
	crashpoint.Here(crashpoint.BuildFilled)
	m.State = ready
	if err := p.record(ctx, name, m); err != nil {
		return err
	}
	crashpoint.Here(crashpoint.BuildCommitted)
	return p.touch(ctx, "completing the record of "+name, func(g *group) error { return g.unset(g.dir, buildingAttr+name) })
}

// record writes what a volume is.
func (p *pool) record(ctx context.Context, name string, m *meta) error {
	written := *m
	return p.touch(ctx, "recording subvolume "+name, func(g *group) error { return g.set(g.base(name), volumeAttr, written) })
}

// abandon removes what could not be completed. Its room stays promised while it cannot be removed, which is retried.
func (p *pool) abandon(ctx context.Context, name string, m *meta) error {
	if err := p.destroy(ctx, name, m); err != nil {
		p.log.Warn("an unfinished volume stays; its removal is retried", "subvolume", name, "error", err)
		return err
	}
	return p.touch(ctx, "removing the record of "+name, func(g *group) error { return g.unset(g.dir, buildingAttr+name) })
}

// clear removes what earlier attempts to make a volume have left. No operation on its ID runs.
func (p *pool) clear(ctx context.Context, id backend.ID) error {
	begun, err := look(ctx, p, "looking for earlier attempts", (*group).begun)
	if err != nil {
		return err
	}
	for name, m := range begun {
		if is, _ := idOf(name); is == id {
			if err := p.conclude(ctx, name, m); err != nil {
				return err
			}
		}
	}
	return nil
}

// conclude ends what is recorded as begun and what no operation works on: it is complete, or it is removed.
func (p *pool) conclude(ctx context.Context, name string, m *meta) error {
	e, err := look(ctx, p, "looking at "+name, func(g *group) (*entry, error) { return g.read(name) })
	switch {
	case err != nil:
		return err
	case e != nil && (e.volume != nil || e.damage != nil):
		return p.touch(ctx, "completing the record of "+name, func(g *group) error { return g.unset(g.dir, buildingAttr+name) })
	case m == nil:
		p.log.Warn("a record of a volume that was begun is damaged and left alone", "attribute", buildingAttr+name)
		return nil
	}
	return p.abandon(ctx, name, m)
}

// expand promises the difference, then sets the quota and records the size last: a quota above the recorded size is an
// interrupted growth, which is finished or taken back at the next start.
func (p *pool) expand(ctx context.Context, e *entry, wish backend.Size) (*backend.Volume, error) {
	if e.volume == nil {
		return nil, fmt.Errorf("%w: %w", backend.ErrPrecondition, e.damage)
	}
	m := *e.volume
	if wish.Required == 0 {
		wish.Required = m.Size
	}
	size, err := wish.Choose(m.Size, backend.SizeUnit)
	if err != nil {
		return nil, fmt.Errorf("volume %s: %w", e.id, err)
	}
	if size == m.Size {
		return p.volume(ctx, e)
	}
	if err := p.promiseGrowth(ctx, e.name, &m, size); err != nil {
		return nil, err
	}
	if err := p.resize(ctx, e.name, size); err != nil {
		return nil, err
	}
	crashpoint.Here(crashpoint.ExpandGrown)
	m.Size = size
	if err := p.record(ctx, e.name, &m); err != nil {
		return nil, err
	}
	crashpoint.Here(crashpoint.ExpandRecorded)
	return p.volume(ctx, &entry{name: e.name, id: e.id, volume: &m})
}

func (p *pool) promiseGrowth(ctx context.Context, name string, m *meta, size int64) error {
	return p.promise(ctx, m.ID, size-m.Charge, func() error {
		m.Charge = size
		return p.record(ctx, name, m)
	})
}

func (p *pool) resize(ctx context.Context, name string, size int64) error {
	return p.manage(ctx, fmt.Sprintf("resizing subvolume %s to %d bytes", name, size), func(a *admin.FSAdmin) error {
		_, err := a.ResizeSubVolume(p.in.FileSystem, p.Group, name, admin.ByteCount(size), false)
		return err
	})
}

// finishGrowth records what a growth that was cut short has come to.
func (p *pool) finishGrowth(ctx context.Context, e *entry) error {
	m := *e.volume
	f, err := look(ctx, p, "looking at volume "+string(e.id), func(g *group) (facts, error) { return g.facts(m.Path) })
	if err != nil {
		return err
	}
	if f.quota == m.Charge {
		m.Size = f.quota
	}
	m.Charge = m.Size
	return p.record(ctx, e.name, &m)
}
