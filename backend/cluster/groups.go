package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/convert"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

// member is one snapshot of a group.
type member struct {
	id   backend.ID
	spec backend.SnapshotSpec
}

// membersOf lists the snapshots that a group consists of, in the order of their sources.
func membersOf(g *v1beta1.SnapshotGroup) (all []member) {
	spec := convert.ToGroup(g)
	for _, source := range slices.Sorted(slices.Values(spec.Sources)) {
		m := spec.Member(source)
		id, err := backend.IDFor(m.Name)
		if err != nil {
			continue // such a group cannot have been written
		}
		all = append(all, member{id, m})
	}
	return all
}

// SnapshotGroup writes the Snapshot objects of all members, each with the whole group, so that the agent takes all
// at one instant whichever it sees first.
func (b *Backend) SnapshotGroup(ctx context.Context, spec backend.GroupSpec) (*backend.Group, error) {
	id, err := backend.IDFor(spec.Name)
	if err != nil {
		return nil, err
	}
	sources, err := spec.Members()
	if err != nil {
		return nil, err
	}
	if g, err := b.GetGroup(ctx, id); err == nil {
		for _, o := range b.groupObjects(id) {
			if err := b.checkOrigin(ctx, o, o.Spec.Node, &backend.Source{Kind: backend.SourceVolume, ID: backend.ID(o.Spec.SourceRef.Name)}); err != nil {
				return nil, err
			}
		}
		return g, g.Satisfies(spec)
	}
	if err := b.together(ctx, id, sources); err != nil {
		return nil, err
	}
	group := convert.FromGroup(backend.GroupSpec{Name: spec.Name, Sources: sources})
	if there := b.groupObjects(id); len(there) > 0 && !sameGroup(there[0].Spec.Group, group) {
		return nil, fmt.Errorf("%w: group %s is being made of volumes %v, requested are %v; choose another name",
			backend.ErrExists, id, there[0].Spec.Group.Volumes, sources)
	}
	taken, err := b.takeAll(ctx, group)
	if err != nil {
		if !errors.Is(err, backend.ErrBusy) {
			b.giveUp(context.WithoutCancel(ctx), group)
		}
		return nil, fmt.Errorf("group %s: %w", id, err)
	}
	return b.group(id, spec.Name, taken), nil
}

func sameGroup(a, b *v1beta1.SnapshotGroup) bool {
	if a == nil || b == nil {
		return a == b
	}
	sorted := func(g *v1beta1.SnapshotGroup) []string { return slices.Sorted(slices.Values(g.Volumes)) }
	return a.Name == b.Name && slices.Equal(sorted(a), sorted(b))
}

// takeAll writes all members and waits for them, until one fails.
func (b *Backend) takeAll(ctx context.Context, group *v1beta1.SnapshotGroup) ([]*v1beta1.Snapshot, error) {
	members := membersOf(group)
	taken := make([]*v1beta1.Snapshot, len(members))
	all, ctx := errgroup.WithContext(ctx)
	for i, m := range members {
		all.Go(func() (err error) {
			if taken[i], err = b.reserve(ctx, m.id, m.spec, group); err != nil {
				return err
			}
			return b.snapshot(taken[i]).Satisfies(m.spec)
		})
	}
	return taken, all.Wait()
}

// giveUp removes the objects of a group that cannot be taken.
func (b *Backend) giveUp(ctx context.Context, group *v1beta1.SnapshotGroup) {
	for _, m := range membersOf(group) {
		if err := b.giveUpMember(ctx, m.id, group); err != nil {
			b.Log.Warn("a snapshot of a failed group stays until the group is requested again or deleted", "snapshot", m.id, "error", err)
		}
	}
}

func (b *Backend) giveUpMember(ctx context.Context, id backend.ID, group *v1beta1.SnapshotGroup) error {
	c := b.snapshots.join(string(id))
	defer c.leave()
	if err := b.snapshots.refresh(ctx, c); err != nil { // the cache may not have it yet
		return err
	}
	if o := c.newest(); o != nil && sameGroup(o.Spec.Group, group) && !c.leaving(o) {
		return b.snapshots.removeAny(ctx, c, o, "its group could not be taken")
	}
	return nil
}

// group converts members, sorted by their sources.
func (b *Backend) group(id backend.ID, name string, members []*v1beta1.Snapshot) *backend.Group {
	g := &backend.Group{ID: id, Name: name}
	for _, o := range members {
		s := b.snapshot(o)
		s.Group = id
		g.Snapshots = append(g.Snapshots, s)
		if s.Created.After(g.Created) {
			g.Created = s.Created
		}
	}
	return g
}

func (b *Backend) GetGroup(_ context.Context, id backend.ID) (*backend.Group, error) {
	there := b.groupObjects(id)
	if len(there) == 0 || len(there) < len(membersOf(there[0].Spec.Group)) || !b.complete(there[0]) {
		return nil, fmt.Errorf("%w: group %s", backend.ErrNotFound, id)
	}
	slices.SortFunc(there, func(x, y *v1beta1.Snapshot) int { return cmp.Compare(x.Spec.SourceRef.Name, y.Spec.SourceRef.Name) })
	return b.group(id, there[0].Spec.Group.Name, there), nil
}

// DeleteGroup removes all existing members, and those that an agent finds on its disk during the deletion.
func (b *Backend) DeleteGroup(ctx context.Context, id backend.ID) error {
	done := map[types.UID]bool{}
	for {
		left := slices.DeleteFunc(b.groupObjects(id), func(o *v1beta1.Snapshot) bool { return done[o.UID] })
		if len(left) == 0 {
			return nil
		}
		all, ctx := errgroup.WithContext(ctx)
		for _, o := range left {
			done[o.UID] = true
			all.Go(func() error {
				return remove(ctx, b, b.snapshots, backend.ID(o.Name), func(*v1beta1.Snapshot) error { return nil })
			})
		}
		if err := all.Wait(); err != nil {
			return fmt.Errorf("group %s: %w", id, err)
		}
	}
}

// together refuses sources that are not all on one node, and those in a Ceph pool.
func (b *Backend) together(ctx context.Context, id backend.ID, sources []backend.ID) error {
	nodes := map[string][]string{}
	for _, source := range sources {
		v, err := b.findComplete(ctx, source)
		if err != nil {
			return fmt.Errorf("%w, a source of group %s", err, id)
		}
		if site := v1beta1.SiteOf(v.Spec.Node); site.Kind == v1beta1.SiteCephPool {
			return fmt.Errorf("%w: group %s: %s, which has %s, takes no snapshots of groups: those of images wait for a release of Holdfast with the library of Ceph 19 (Squid), and of directories Ceph has none; make a snapshot of each volume",
				backend.ErrUnsupported, id, site, source)
		}
		nodes[v.Spec.Node] = append(nodes[v.Spec.Node], string(source))
	}
	if len(nodes) <= 1 {
		return nil
	}
	var all []string
	for _, node := range slices.Sorted(maps.Keys(nodes)) {
		all = append(all, v1beta1.SiteOf(node).String()+" has "+strings.Join(nodes[node], ", "))
	}
	return fmt.Errorf("%w group %s: all volumes of a group must be on one node or NFS server: %s", backend.ErrInvalid, id, Few(all, "; "))
}
