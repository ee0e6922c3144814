package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/holdfast-storage/holdfast/api/convert"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

// Create writes a Volume object for the node with the most free capacity and waits until its agent has created the volume.
func (b *Backend) Create(ctx context.Context, spec backend.VolumeSpec) (*backend.Volume, error) {
	return b.create(ctx, spec, nil)
}

// Clone creates the volume on the node of its source. One in another pool is made empty there, and returned when a pod has
// copied the content (operator/volumecopy).
func (b *Backend) Clone(ctx context.Context, source backend.ID, spec backend.VolumeSpec) (*backend.Volume, error) {
	return b.create(ctx, spec, &backend.Source{Kind: backend.SourceVolume, ID: source})
}

// Restore is Clone from a snapshot.
func (b *Backend) Restore(ctx context.Context, snapshot backend.ID, spec backend.VolumeSpec) (*backend.Volume, error) {
	return b.create(ctx, spec, &backend.Source{Kind: backend.SourceSnapshot, ID: snapshot})
}

// creation is one call to create a volume. It depends only on the state of the object, so a repeated call joins, in this
// process or another.
type creation struct {
	*Backend
	*call[*v1beta1.Volume]
	placement
	spec        backend.VolumeSpec
	source      *backend.Source
	populatedBy v1beta1.Populator // decided by begin
}

func (b *Backend) create(ctx context.Context, spec backend.VolumeSpec, source *backend.Source) (*backend.Volume, error) {
	id, err := backend.IDFor(spec.Name)
	if err != nil {
		return nil, err
	}
	if spec.Incomplete {
		return nil, fmt.Errorf("%w: volume %s: only the agent of a pool makes a volume that is incomplete", backend.ErrInvalid, id)
	}
	bytes, err := spec.Size.Choose(1, 1)
	if err != nil {
		return nil, fmt.Errorf("volume %s: %w", id, err)
	}
	if err := checkServer(spec); err != nil {
		return nil, fmt.Errorf("volume %s: %w", id, err)
	}
	c := &creation{
		Backend: b, call: b.volumes.join(string(id)), spec: spec, source: source,
		placement: placement{id: id, pool: spec.Pool, bytes: bytes, nodes: spec.Nodes, tried: map[string]error{}, home: b.Home(spec.Shared, spec.Server, spec.Pool)},
	}
	if c.home.Kind != "" || spec.NodesYield && source != nil && b.isOnANode(ctx, source) {
		c.nodes = nil // all nodes reach all sites, and a source on a node decides itself
	}
	defer c.leave()
	for {
		if err := ctx.Err(); err != nil {
			return nil, b.volumes.busy(c.call, err)
		}
		v, err := c.step(ctx)
		switch {
		case ctx.Err() != nil && errors.Is(err, ctx.Err()):
			return nil, b.volumes.busy(c.call, err)
		case err != nil:
			return nil, err
		case v != nil:
			if v1beta1.NamesPool(spec.Pool, v.Pool) {
				spec.Pool = v.Pool
			}
			return v, v.Satisfies(spec, source)
		}
	}
}

// step takes the next step for the object's state, or waits until that changes.
func (c *creation) step(ctx context.Context) (*backend.Volume, error) {
	o := c.newest()
	if o == nil {
		return nil, c.alone(ctx, func() error { return c.begin(ctx) })
	}
	if err := c.volumes.readable(o); err != nil {
		return nil, err
	}
	s := volumeState(o)
	down := c.liveness.down(s.node)
	switch {
	case s.request != nil && !c.leaving(o): // the process that requested the deletion was killed in the middle
		_, err := c.volumes.remove(ctx, c.call, o, s.request.Reason)
		return nil, err
	case c.leaving(o) && down != "" && !s.made:
		return nil, rollBack(ctx, c.Backend, c.volumes, c.call, o, "the volume was deleted before it was created")
	case c.leaving(o):
		return nil, c.volumes.awaitLeave(ctx, c.call, s, down)
	case s.made && o.IsIncomplete():
		return nil, fmt.Errorf("%w: %w, and it is made again", backend.ErrExists, errIncomplete(o))
	case s.made:
		return c.volume(o), cmp.Or(c.checkOrigin(ctx, o, s.node, c.source), c.checkHome(o, s.node))
	case s.failure() != nil && c.asks(o):
		return nil, c.refuse(ctx, o, s.failure())
	case s.failure() != nil:
		_, err := c.volumes.remove(ctx, c.call, o, "another volume of that name failed and is now requested with other properties")
		return nil, err
	case len(c.nodes) > 0 && !slices.Contains(c.nodes, s.node):
		_, err := c.volumes.remove(ctx, c.call, o, "the volume is now requested on another node and was not created yet")
		return nil, err
	case down != "" && s.copying != "" && !s.isGone():
		return nil, fmt.Errorf("%w: volume %s: %s is down: %s; %s", backend.ErrUnavailable, c.id, v1beta1.SiteOf(s.node), down, s.copying)
	case down != "":
		c.tried[s.node] = fmt.Errorf("%w: %s is down: %s", backend.ErrUnavailable, v1beta1.SiteOf(s.node), down)
		return nil, rollBack(ctx, c.Backend, c.volumes, c.call, o, "the volume was not created in time: "+down)
	}
	defer backend.Step(c.Log, c.id, "wait")()
	return nil, c.wait(ctx)
}

// checkHome refuses what an agent has written under the name of a volume that is to be of another kind or at another server or Ceph
// pool. NFS servers know the names: they read claims.
func (c *creation) checkHome(o *v1beta1.Volume, node string) error {
	is := v1beta1.SiteOf(node)
	if o.Labels[v1beta1.AdoptedLabel] == "" || is.Kind == c.home.Kind && (c.home.Name == "" || is.Name == c.home.Name) {
		return nil
	}
	return fmt.Errorf("%w: %s is on %s, which has written it, and is to be elsewhere; delete it, and look for who did", backend.ErrExists, o.Name, is)
}

// asks says whether an object is what this call requests, on any node.
func (c *creation) asks(o *v1beta1.Volume) bool {
	want := convert.FromVolumeSpec(o.Spec.Node, c.spec, c.source)
	if want.Pool == "" || v1beta1.NamesPool(want.Pool, o.Spec.Pool) {
		want.Pool = o.Spec.Pool
	}
	if want.PopulatedBy = o.Spec.PopulatedBy; want.PopulatedBy != "" && c.spec.Size.Required == 0 {
		want.Size.Required = o.Spec.Size.Required // that of the source
	}
	return equality.Semantic.DeepEqual(want, o.Spec)
}

// begin writes the object, unless another call has.
func (c *creation) begin(ctx context.Context) error {
	if c.newest() != nil {
		return nil
	}
	if c.source != nil {
		if err := c.follow(ctx); err != nil {
			return err
		}
	}
	defer backend.Step(c.Log, c.id, "place")()
	node, pool, err := c.place(&c.placement)
	if err != nil {
		return err
	}
	spec := convert.FromVolumeSpec(node, c.spec, c.source)
	spec.Pool, spec.PopulatedBy = pool, c.populatedBy
	if err := c.volumes.write(ctx, c.call, volumeObject(c.id, spec)); err != nil {
		c.reservations.release(node, c.id)
		return err
	}
	return nil
}

// refuse deletes an object that its agent refused, to try another node. If none is left, the caller gets the agent's
// error.
func (c *creation) refuse(ctx context.Context, o *v1beta1.Volume, why error) error {
	removed, err := c.volumes.remove(ctx, c.call, o, "the volume could not be created")
	switch {
	case err != nil:
		return fmt.Errorf("%w; and its object could not be removed: %v", why, err)
	case !removed:
		return nil // it was changed in between
	}
	c.volumes.seen(ctx, c.call, o.UID)
	c.reservations.release(o.Spec.Node, c.id)
	if errors.Is(why, backend.ErrExhausted) || errors.Is(why, backend.ErrUnavailable) {
		c.tried[o.Spec.Node+"/"+o.Spec.Pool] = why
		if c.source == nil && c.another() {
			return nil
		}
	}
	return fmt.Errorf("%w (%s)", why, v1beta1.SiteOf(o.Spec.Node))
}

// another says whether there is a pool that has not been tried.
func (c *creation) another() bool {
	for _, n := range c.hosts(c.home) {
		allowed := len(c.nodes) == 0 || slices.Contains(c.nodes, n.Name)
		if !allowed || c.tried[n.Name] != nil || c.liveness.down(n.Name) != "" {
			continue
		}
		if slices.ContainsFunc(poolsOf(n, c.pool), func(p *v1beta1.Pool) bool { return c.tried[n.Name+"/"+p.Name] == nil }) {
			return true
		}
	}
	return false
}
