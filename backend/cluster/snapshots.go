package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/convert"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

func snapshotObject(id backend.ID, node string, spec backend.SnapshotSpec, group *v1beta1.SnapshotGroup) *v1beta1.Snapshot {
	return &v1beta1.Snapshot{
		ObjectMeta: metav1.ObjectMeta{Name: string(id), Finalizers: []string{v1beta1.AgentFinalizer}},
		Spec:       convert.FromSnapshotSpec(node, spec, group),
	}
}

// Snapshot writes a Snapshot object on the node of the source and waits until its agent has taken it.
func (b *Backend) Snapshot(ctx context.Context, spec backend.SnapshotSpec) (*backend.Snapshot, error) {
	id, err := backend.IDFor(spec.Name)
	if err != nil {
		return nil, err
	}
	o, err := b.reserve(ctx, id, spec, nil)
	if err != nil {
		return nil, err
	}
	s := b.snapshot(o)
	return s, s.Satisfies(spec)
}

// take takes one snapshot. It depends only on the state of the object, so a repeated call joins.
func (b *Backend) reserve(ctx context.Context, id backend.ID, spec backend.SnapshotSpec, group *v1beta1.SnapshotGroup) (*v1beta1.Snapshot, error) {
	c := b.snapshots.join(string(id))
	defer c.leave()
	for {
		if err := ctx.Err(); err != nil {
			return nil, b.snapshots.busy(c, err)
		}
		o := c.newest()
		switch {
		case o != nil && o.Unreadable() != nil:
			return nil, b.snapshots.readable(o)
		case o != nil && !sameGroup(o.Spec.Group, group):
			return nil, fmt.Errorf("%w: snapshot %s is there, of another group or of none; choose another name", backend.ErrExists, id)
		case o != nil && snapshotState(o).made && !c.leaving(o):
			return o, b.checkOrigin(ctx, o, o.Spec.Node, &backend.Source{Kind: backend.SourceVolume, ID: spec.Source})
		}
		err := b.takeStep(ctx, c, o, spec, group)
		switch {
		case ctx.Err() != nil && errors.Is(err, ctx.Err()):
			return nil, b.snapshots.busy(c, err)
		case err != nil:
			return nil, err
		}
	}
}

// takeStep takes the next step for a snapshot that is not taken yet, or waits until its state changes.
func (b *Backend) takeStep(ctx context.Context, c *call[*v1beta1.Snapshot], o *v1beta1.Snapshot, spec backend.SnapshotSpec, group *v1beta1.SnapshotGroup) error {
	if o == nil {
		return c.alone(ctx, func() error { return b.beginSnapshot(ctx, c, spec, group) })
	}
	s := snapshotState(o)
	down := b.liveness.down(s.node)
	switch {
	case down != "" && !s.made:
		if err := rollBack(ctx, b, b.snapshots, c, o, "the snapshot was not taken in time: "+down); err != nil {
			return err
		}
		return fmt.Errorf("%w: snapshot %s: %s is down: %s", backend.ErrUnavailable, c.name, v1beta1.SiteOf(s.node), down)
	case c.leaving(o) && s.failure() != nil: // says more than that its node is down since
		return b.snapshots.awaitLeave(ctx, c, s, "")
	case c.leaving(o):
		return b.snapshots.awaitLeave(ctx, c, s, down)
	case s.failure() != nil:
		removed, err := b.snapshots.remove(ctx, c, o, "the snapshot could not be taken")
		switch {
		case err != nil:
			return fmt.Errorf("%w; and its object could not be removed: %v", s.failure(), err)
		case removed && o.Spec.SourceRef.Name == string(spec.Source):
			b.snapshots.seen(ctx, c, o.UID)
			return s.failure()
		}
		return nil // it was changed in between, or another request failed
	}
	return c.wait(ctx)
}

func (b *Backend) beginSnapshot(ctx context.Context, c *call[*v1beta1.Snapshot], spec backend.SnapshotSpec, group *v1beta1.SnapshotGroup) error {
	if c.newest() != nil {
		return nil
	}
	source, err := b.findComplete(ctx, spec.Source)
	if err != nil {
		return fmt.Errorf("%w, the source of snapshot %s", err, c.name)
	}
	if why := b.liveness.down(source.Spec.Node); why != "" {
		return fmt.Errorf("%w: snapshot %s of volume %s: %s is down: %s", backend.ErrUnavailable, c.name, spec.Source, v1beta1.SiteOf(source.Spec.Node), why)
	}
	return b.snapshots.write(ctx, c, snapshotObject(backend.ID(c.name), source.Spec.Node, spec, group))
}

// DeleteSnapshot removes a snapshot that belongs to no group.
func (b *Backend) DeleteSnapshot(ctx context.Context, id backend.ID) error {
	return remove(ctx, b, b.snapshots, id, func(o *v1beta1.Snapshot) error {
		if g := o.Spec.Group; g != nil {
			return fmt.Errorf("%w: snapshot %s belongs to group %s; delete the group", backend.ErrPrecondition, id, backend.Quote(g.Name))
		}
		return nil
	})
}

// GetSnapshot returns a snapshot that is taken. A member of an incomplete group does not exist.
func (b *Backend) GetSnapshot(ctx context.Context, id backend.ID) (*backend.Snapshot, error) {
	o, err := b.snapshots.find(ctx, id)
	if err != nil {
		return nil, err
	}
	if !b.complete(o) {
		return nil, fmt.Errorf("%w: snapshot %s, which is not made yet", backend.ErrNotFound, snapshotState(o))
	}
	return b.snapshot(o), nil
}

func (b *Backend) ListSnapshots(context.Context) ([]*backend.Snapshot, error) {
	var all []*backend.Snapshot
	for _, o := range b.allSnapshots() {
		if b.complete(o) {
			all = append(all, b.snapshot(o))
		}
	}
	slices.SortFunc(all, func(x, y *backend.Snapshot) int { return cmp.Compare(x.ID, y.ID) })
	return all, nil
}

// complete says whether a snapshot, and all of its group, is taken.
func (b *Backend) complete(o *v1beta1.Snapshot) bool {
	if o.Spec.Group == nil {
		return snapshotState(o).made
	}
	for _, m := range membersOf(o.Spec.Group) {
		member := b.snapshots.cached(string(m.id))
		if member == nil && string(m.id) == o.Name {
			member = o // newer than the cache
		}
		if member == nil || !snapshotState(member).made {
			return false
		}
	}
	return true
}
