//go:build ceph

package rbd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ceph/go-ceph/rados"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/crashpoint"
)

// groupsObject has a value for each group in its omap. It is written last: members without it do not exist for callers.
//
// Ceph's own groups of images are not used: of their snapshots no image can be made before Ceph 20. One instant is what
// it is in Ceph, too: no image can be written while the locks of all are held.
const groupsObject = "holdfast.groups"

type groupRecord struct {
	Version int        `json:"version"`
	ID      backend.ID `json:"id"`
	Name    string     `json:"name"`
	Created time.Time  `json:"created"`
	Members []member   `json:"members"` // in the order of their sources
}

type member struct {
	Snapshot backend.ID `json:"snapshot"`
	Source   backend.ID `json:"source"`
}

// groups returns all groups.
func (s *session) groups() (map[backend.ID]*groupRecord, error) {
	const page = 1000
	values, err := s.ioctx.GetAllOmapValues(groupsObject, "", "", page)
	if absent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all := map[backend.ID]*groupRecord{}
	for key, value := range values {
		var g groupRecord
		if err := json.Unmarshal(value, &g); err != nil || g.Version > version {
			return nil, fmt.Errorf("%w: entry %s of object %s is damaged or newer (%v); it says %s", backend.ErrUnavailable, backend.Quote(key), groupsObject, err, backend.Quote(string(value)))
		}
		all[backend.ID(key)] = &g
	}
	return all, nil
}

func (b *Backend) findGroup(ctx context.Context, id backend.ID) (*groupRecord, error) {
	all, err := call(ctx, b, "looking for group "+string(id), func(s *session) (map[backend.ID]*groupRecord, error) { return s.groups() })
	return all[id], err
}

func (b *Backend) SnapshotGroup(ctx context.Context, spec backend.GroupSpec) (*backend.Group, error) {
	id, err := backend.IDFor(spec.Name)
	if err != nil {
		return nil, err
	}
	sources, err := spec.Members()
	if err != nil {
		return nil, err
	}
	return do(ctx, b, groupKey(id), "group snapshot", func(ctx context.Context) (*backend.Group, error) {
		g, err := b.findGroup(ctx, id)
		if err != nil {
			return nil, err
		}
		if g != nil {
			found, err := b.group(ctx, g)
			if err != nil {
				return nil, err
			}
			return found, found.Satisfies(spec)
		}
		return holding(ctx, b, sources, "group snapshot "+string(id), func(ctx context.Context) (*backend.Group, error) {
			return b.takeGroup(ctx, id, spec, sources)
		})
	})
}

// holding runs f while nothing else runs on any of ids, which are in order, so that two groups cannot wait for each other.
func holding[T any](ctx context.Context, b *Backend, ids []backend.ID, verb string, f func(context.Context) (T, error)) (T, error) {
	if len(ids) == 0 {
		return f(ctx)
	}
	return do(ctx, b, ids[0], verb, func(ctx context.Context) (T, error) { return holding(ctx, b, ids[1:], verb, f) })
}

// part is one member of a group on its way.
type part struct {
	meta *meta
	from *record
	made bool
}

func (b *Backend) takeGroup(ctx context.Context, id backend.ID, spec backend.GroupSpec, sources []backend.ID) (_ *backend.Group, err error) {
	g := &groupRecord{Version: version, ID: id, Name: spec.Name, Created: time.Now().UTC()}
	var parts []*part
	for _, source := range sources {
		from, err := b.need(ctx, volumes, source, ", a source of group "+string(id))
		if err != nil {
			return nil, err
		}
		one := spec.Member(source)
		is, err := backend.IDFor(one.Name)
		if err != nil {
			return nil, err
		}
		if left, err := b.find(ctx, snapshots, is); err != nil {
			return nil, err
		} else if left != nil && (left.meta == nil || left.meta.Group != id) {
			return nil, fmt.Errorf("%w: snapshot %s is not of group %s", backend.ErrExists, is, id)
		}
		if err := b.dropMember(ctx, is); err != nil {
			return nil, err
		}
		m := snapshotMeta(is, one, from)
		m.Group, m.Created = id, g.Created
		parts = append(parts, &part{meta: m, from: from})
		g.Members = append(g.Members, member{Snapshot: is, Source: source})
	}
	if err := b.fillGroup(ctx, parts); err != nil {
		return nil, errors.Join(fmt.Errorf("group %s: %w", id, err), b.dropParts(ctx, parts))
	}
	crashpoint.Here(crashpoint.ImagesGrouped)
	_, err = call(ctx, b, "recording group "+string(id), func(s *session) (any, error) {
		if err := s.ioctx.SetOmap(groupsObject, map[string][]byte{string(id): encode(g)}); err != nil {
			return nil, err
		}
		return nil, s.setMembers(g, complete)
	})
	if err != nil {
		return nil, err
	}
	return b.group(ctx, g)
}

// fillGroup makes the members: first the snapshots of all sources at one instant, then an image of each.
func (b *Backend) fillGroup(ctx context.Context, parts []*part) error {
	for _, p := range parts {
		name := p.meta.imageName()
		if err := b.clear(ctx, name); err != nil {
			return err
		}
		if err := b.promise(ctx, name, &promise{Charge: p.meta.Size, State: building, Source: p.from.name}); err != nil {
			return err
		}
	}
	crashpoint.Here(crashpoint.ImagePromised)
	if _, err := call(ctx, b, "snapshots of one instant", func(s *session) (any, error) { return nil, s.snapTogether(parts) }); err != nil {
		return err
	}
	for _, p := range parts {
		if _, err := call(ctx, b, "making image "+p.meta.imageName(), func(s *session) (any, error) { return nil, s.makeMember(p) }); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) makeMember(p *part) error {
	name := p.meta.imageName()
	if err := s.copySnapped(name, p.from); err != nil {
		return err
	}
	if err := s.fix(name); err != nil {
		return err
	}
	crashpoint.Here(crashpoint.ImageFilled)
	if err := s.writeMeta(p.meta); err != nil {
		return err
	}
	p.made = true
	return nil
}

// setMembers says in the ledger whether the members of a group are complete. They are only as long as their group is recorded:
// before and after that they are what may be discarded.
func (s *session) setMembers(g *groupRecord, is state) error {
	var names []string
	for _, m := range g.Members {
		names = append(names, imageName(snapshots, m.Snapshot))
	}
	entries, err := s.ledger.get(names...)
	if err != nil {
		return err
	}
	next := map[string]*promise{}
	for name, p := range entries {
		next[name] = &promise{Charge: p.Charge, State: is}
	}
	return s.ledger.change(next, nil)
}

// snapTogether takes a snapshot of each source while the locks of all are held.
func (s *session) snapTogether(parts []*part) (err error) {
	var held []*heldLock
	defer func() {
		for _, h := range held {
			err = errors.Join(err, h.close())
		}
	}()
	for _, p := range parts {
		h, err := s.watchLock(p.from)
		if err != nil {
			return err
		}
		held = append(held, h)
	}
	for _, h := range held {
		if err := h.lock(); err != nil {
			return err
		}
	}
	for i, h := range held {
		if err := snap(h.image, temporaryPrefix+parts[i].meta.imageName()); err != nil {
			return err
		}
	}
	crashpoint.Here(crashpoint.ImagesSnapped)
	for _, h := range held {
		if err := h.check(); err != nil {
			return err
		}
	}
	return nil
}

// dropParts removes what there is of a group that failed.
func (b *Backend) dropParts(ctx context.Context, parts []*part) error {
	var errs []error
	for _, p := range parts {
		if p.made {
			errs = append(errs, b.dropMember(ctx, p.meta.ID))
			continue
		}
		errs = append(errs, b.clear(ctx, p.meta.imageName()))
	}
	return errors.Join(errs...)
}

// dropMember removes a snapshot that belongs to a group which is not complete, if it is one.
func (b *Backend) dropMember(ctx context.Context, id backend.ID) error {
	r, err := b.find(ctx, snapshots, id)
	if err != nil || r == nil || r.meta == nil || r.meta.Group == "" {
		return err
	}
	if exists, err := b.memberExists(ctx, r); err != nil || exists {
		return err
	}
	return b.remove(ctx, r)
}

// exists says whether a snapshot exists for callers. A member of a group does not before its group is recorded, and while that is
// deleted. Where Ceph has lost the record, that is noted.
func (r *record) exists(groups map[backend.ID]*groupRecord, p promise) bool {
	r.orphaned = r.meta != nil && r.meta.Group != "" && groups[r.meta.Group] == nil
	return !r.orphaned || p.State == complete
}

func (b *Backend) memberExists(ctx context.Context, r *record) (bool, error) {
	return call(ctx, b, "looking for the group of "+r.name, func(s *session) (bool, error) {
		groups, err := s.groups()
		if err != nil {
			return false, err
		}
		entries, err := s.ledger.get(r.name)
		return r.exists(groups, entries[r.name]), err
	})
}

func (b *Backend) group(ctx context.Context, g *groupRecord) (*backend.Group, error) {
	found := &backend.Group{ID: g.ID, Name: g.Name, Created: g.Created}
	for _, m := range g.Members {
		r, err := b.find(ctx, snapshots, m.Snapshot)
		if err != nil {
			return nil, err
		}
		if r == nil {
			return nil, fmt.Errorf("%w: group %s lost its snapshot %s", backend.ErrPrecondition, g.ID, m.Snapshot)
		}
		s := b.snapshot(r)
		s.Source = m.Source
		found.Snapshots = append(found.Snapshots, s)
	}
	return found, nil
}

func (b *Backend) GetGroup(ctx context.Context, id backend.ID) (*backend.Group, error) {
	g, err := b.findGroup(ctx, id)
	if err != nil {
		return nil, err
	}
	if g == nil {
		return nil, fmt.Errorf("%w: group %s in pool %s", backend.ErrNotFound, backend.Quote(string(id)), b.Name)
	}
	return b.group(ctx, g)
}

// DeleteGroup removes the record first: from then on the group does not exist, and its members go now or at the next start.
func (b *Backend) DeleteGroup(ctx context.Context, id backend.ID) error {
	_, err := do(ctx, b, groupKey(id), "delete group", func(ctx context.Context) (any, error) {
		g, err := b.findGroup(ctx, id)
		if err != nil || g == nil {
			return nil, err
		}
		_, err = call(ctx, b, "removing group "+string(id), func(s *session) (any, error) {
			if err := s.setMembers(g, building); err != nil {
				return nil, err
			}
			op := rados.CreateWriteOp()
			defer op.Release()
			op.RmOmapKeys([]string{string(id)})
			return nil, op.Operate(s.ioctx, groupsObject, rados.OperationNoFlag)
		})
		if err != nil {
			return nil, err
		}
		crashpoint.Here(crashpoint.GroupDropped)
		for _, m := range g.Members {
			if err := b.dropMember(ctx, m.Snapshot); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
	return err
}
