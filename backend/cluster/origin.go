package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

// origin is where the source of a volume is.
type origin struct {
	node, pool string
	bytes      int64
	mode       backend.Mode
}

func (b *Backend) origin(ctx context.Context, source *backend.Source) (origin, error) {
	if source.Kind == backend.SourceSnapshot {
		s, err := b.snapshots.find(ctx, source.ID)
		if err != nil {
			return origin{}, err
		}
		pool := s.Status.Pool
		if v, err := b.volumes.find(ctx, backend.ID(s.Spec.SourceRef.Name)); pool == "" && err == nil { // it is not made yet
			pool = v.PoolName()
		}
		return origin{s.Spec.Node, pool, v1beta1.Bytes(s.Status.Size), backend.Mode(s.Status.Mode)}, nil
	}
	v, err := b.findComplete(ctx, source.ID)
	if err != nil {
		return origin{}, err
	}
	return origin{v.Spec.Node, v.PoolName(), v1beta1.Bytes(v.Status.Size), backend.Mode(v.Status.Mode)}, nil
}

// checkOrigin refuses what an agent has written under the name of a copy where the source of that is not: it could have any
// content. If the source is gone, the copy was made before.
func (b *Backend) checkOrigin(ctx context.Context, o v1beta1.Object, node string, source *backend.Source) error {
	if source == nil || o.GetLabels()[v1beta1.AdoptedLabel] == "" {
		return nil
	}
	from, err := b.origin(ctx, source)
	switch {
	case errors.Is(err, backend.ErrNotFound):
		return nil
	case err != nil:
		return err
	case from.node != node:
		return fmt.Errorf("%w: %s is on %s, which has written it, and is no copy of %s, which is on %s; delete it, and look for who did",
			backend.ErrExists, o.GetName(), v1beta1.SiteOf(node), source, v1beta1.SiteOf(from.node))
	}
	return nil
}

func errIncomplete(v *v1beta1.Volume) error {
	return fmt.Errorf("volume %s has only a part of its content, since its object was deleted while it was copied; delete it (holdfast volumes delete %s)", v.Name, v.Name)
}

// findComplete returns a volume that can be copied.
func (b *Backend) findComplete(ctx context.Context, id backend.ID) (*v1beta1.Volume, error) {
	v, err := b.volumes.find(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case v.IsIncomplete():
		return nil, fmt.Errorf("%w: %w", backend.ErrPrecondition, errIncomplete(v))
	case v.IsBeingPopulated():
		return nil, fmt.Errorf("%w: volume %s does not have all of its content yet: %s", backend.ErrUnavailable, id, copyInWords(v.Status.Copy))
	}
	return v, nil
}

// isOnANode says whether a source is on the disk of a node, or not known.
func (b *Backend) isOnANode(ctx context.Context, source *backend.Source) bool {
	from, err := b.origin(ctx, source)
	return err != nil || v1beta1.SiteOf(from.node).Kind == ""
}

// follow decides how the volume gets the content of its source, and so where it may be.
func (c *creation) follow(ctx context.Context) error {
	from, err := c.origin(ctx, c.source)
	if err != nil {
		return fmt.Errorf("%w, the source of volume %s", err, c.id)
	}
	switch {
	case c.isHome(from):
		c.only = from.pool
		return c.pin(ctx, from)
	case c.home.Kind == v1beta1.SiteNFSServer || v1beta1.SiteOf(from.node).Kind == v1beta1.SiteNFSServer:
		return c.otherHome(from.node)
	}
	return c.populate(ctx, from)
}

// isHome says whether the volume may be in the pool of its source, whose agent then copies it.
func (c *creation) isHome(from origin) bool {
	is, want := v1beta1.SiteOf(from.node), c.home
	switch {
	case is.Kind != want.Kind:
		return false
	case is.Kind == "": // the pool of a source that is not made yet is not known
		return c.spec.Pool == "" || from.pool == "" || v1beta1.NamesPool(c.spec.Pool, from.pool)
	}
	named := c.spec.Server != "" || want.Kind == v1beta1.SiteCephPool && c.spec.Pool != ""
	return !named || is.Name == want.Name
}

// pin leaves only the node of the source.
func (c *creation) pin(ctx context.Context, from origin) error {
	if len(c.nodes) > 0 && !slices.Contains(c.nodes, from.node) {
		return fmt.Errorf("%w: volume %s must be on node %s, where %s is; it was requested on %s",
			backend.ErrExhausted, c.id, from.node, c.source, Few(c.nodes, ", "))
	}
	if c.home.Kind == "" {
		if err := c.admit(ctx, c.id, c.spec.Labels, c.source, from.node); err != nil {
			return err
		}
	}
	c.nodes, c.pinned = []string{from.node}, true
	if c.spec.Size.Required == 0 {
		c.bytes = from.bytes
	}
	return nil
}

// populate has the volume made empty in its own pool, for a pod that copies the content. Pods reach all sites and what is on
// their node: of two pools on nodes, both must be on the same.
func (c *creation) populate(ctx context.Context, from origin) error {
	if from.bytes == 0 {
		return fmt.Errorf("%w: %s, the source of volume %s, is not made yet", backend.ErrUnavailable, c.source, c.id)
	}
	if mode := cmp.Or(c.spec.Mode, backend.Filesystem); from.mode != mode {
		return fmt.Errorf("%w volume %s: it is of mode %s, and %s, from which it is copied into another pool, is of mode %s: a claim with volumeMode %s can be made from it",
			backend.ErrInvalid, c.id, mode, c.source, from.mode, from.mode)
	}
	if required := c.spec.Size.Required; required != 0 && required < from.bytes {
		return fmt.Errorf("%w: volume %s is requested with %s, and %s has %s: request at least as much (%d)", backend.ErrOutOfRange, c.id, backend.Readable(required), c.source, backend.Readable(from.bytes), from.bytes)
	}
	if err := c.checkClient(from); err != nil {
		return err
	}
	if err := c.checkClaim(ctx); err != nil {
		return err
	}
	size := backend.Size{Required: max(c.spec.Size.Required, from.bytes), Limit: c.spec.Size.Limit}
	if _, err := size.Choose(1, 1); err != nil {
		return fmt.Errorf("volume %s, which must be as large as %s: %w", c.id, c.source, err)
	}
	if c.home.Kind == "" && v1beta1.SiteOf(from.node).Kind == "" {
		if err := c.pin(ctx, from); err != nil {
			return err
		}
	}
	c.spec.Size, c.bytes, c.populatedBy = size, size.Required, v1beta1.PopulatedByPod
	return nil
}

// checkClient refuses a copy from a node into a Ceph pool whose volumes that node cannot use: the pod could be on no other.
func (c *creation) checkClient(from origin) error {
	if c.home.Kind != v1beta1.SiteCephPool || v1beta1.SiteOf(from.node).Kind != "" {
		return nil
	}
	key := v1beta1.CephFSVolumesKey
	if c.Reach(c.spec.Pool) == backend.OneHost {
		key = v1beta1.RBDVolumesKey
	}
	if err := c.CanUse(from.node, key); err != nil {
		return fmt.Errorf("volume %s would be copied by a pod on node %s, where %s is, and that node cannot use volumes of Ceph pool %s; mend that on the node first: %w",
			c.id, from.node, c.source, c.home.Name, err)
	}
	return nil
}

// checkClaim refuses to begin a long copy for a claim that is gone: csi-provisioner requests its volume until it is made, and
// what is not used is removed in between.
func (c *creation) checkClaim(ctx context.Context) error {
	name, namespace := c.spec.Labels[v1beta1.ClaimNameLabel], c.spec.Labels[v1beta1.ClaimNamespaceLabel]
	if name == "" {
		return nil
	}
	_, err := c.Kubernetes.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: volume %s: its claim %s/%s is gone, so nothing is copied for it", backend.ErrPrecondition, c.id, namespace, name)
	case err != nil:
		return unavailable(c.id, err)
	}
	return nil
}
