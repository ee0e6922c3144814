package driver

import (
	"cmp"
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// populatesContext is that of the PersistentVolume by which a pod brings the content.
const populatesContext = "holdfast.dev/populates"

func (n *node) NodeStageVolume(ctx context.Context, req *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	id, err := parseID("volume_id", req.GetVolumeId())
	access, unusable := parseCapability(req.GetVolumeCapability())
	if err := cmp.Or(err, parsePath("staging_target_path", req.GetStagingTargetPath()), unusable); err != nil {
		return nil, err
	}
	shared, err := parseContext(id, req.GetVolumeContext())
	if err != nil {
		return nil, err
	}
	return &csi.NodeStageVolumeResponse{}, n.do(ctx, id, "stage", func(ctx context.Context) error {
		v, err := n.lookUp(ctx, id, shared, access)
		if err != nil {
			return err
		}
		if err := n.mayUse(ctx, v, req.GetVolumeContext()); err != nil {
			return err
		}
		return explain(v, n.stage(ctx, v, access, req.GetStagingTargetPath()))
	})
}

// mayUse refuses an image that another node has, a volume without all of its content, and to copy into one that has it, also where
// a pod has it staged already: for a Ceph pool its agent says that in the object.
func (n *node) mayUse(ctx context.Context, v *backend.Volume, volumeContext map[string]string) error {
	local := v.Access.Image != "" || v.Access.Directory != ""
	switch {
	case v.Access.RBD != nil && v.AttachedTo != "" && v.AttachedTo != n.NodeID:
		return fmt.Errorf("%w: volume %s is attached to node %s, and an image is used by one node at a time: it can be used on node %s once it is attached to that",
			backend.ErrPrecondition, v.ID, v.AttachedTo, n.NodeID)
	case v.Access.RBD != nil && v.Detached:
		return fmt.Errorf("%w: volume %s is attached to no node, and an image is used on the node that it is attached to: Kubernetes attaches it for a pod (kubectl get volumeattachments shows where)",
			backend.ErrPrecondition, v.ID)
	case volumeContext[populatesContext] != "" && !v.Incomplete && local:
		return fmt.Errorf("%w: volume %s is stored with all of its content, so nothing is copied into it", backend.ErrPrecondition, v.ID)
	case v.Incomplete && n.CheckComplete != nil:
		return n.CheckComplete(ctx, v.ID)
	}
	return nil
}

// lookUp returns a volume that can be used as asked, which is the shared one if it is not nil.
func (n *node) lookUp(ctx context.Context, id backend.ID, shared *backend.Volume, a access) (v *backend.Volume, err error) {
	if v = shared; v == nil {
		if v, err = n.Backend.Get(ctx, id); err != nil {
			return nil, err
		}
	}
	if err := accessible(v); err != nil {
		return nil, err
	}
	return v, a.fits(v)
}

func (n *node) stage(ctx context.Context, v *backend.Volume, a access, path string) error {
	staging, err := resolve(path)
	if err != nil {
		return err
	}
	p, err := n.stateOf(v)
	if err != nil {
		return err
	}
	place := p.place(staging)
	m, err := nodeops.MountAt(place)
	if err != nil {
		return err
	}
	if m != nil && nodeops.IsOrphan(m) { // of a device that another program has unmapped
		if err := nodeops.Unmount(ctx, place); err != nil {
			return err
		}
		m = nil
	}
	if m, err = p.own(m, place); err != nil {
		return err
	}
	if m == nil {
		if err := checkDirectory(staging); err != nil {
			return err
		}
		return p.mount(ctx, a, place)
	}
	if err := p.verify(m, staging); err != nil {
		return err
	}
	if m.ReadOnly != a.readOnly() {
		return otherwise(v.ID, m, a.readOnly())
	}
	return p.complete(ctx, a, m)
}

// otherwise refuses a repeat that asks for something else than what is there.
func otherwise(id backend.ID, m *nodeops.Mount, readOnly bool) error {
	words := map[bool]string{true: "read-only", false: "writable"}
	return fmt.Errorf("%w: volume %s is mounted %s at %s, and requested %s: delete the pods that use it so first",
		backend.ErrExists, id, words[m.ReadOnly], m.Target, words[readOnly])
}

// stayedSmall reports a volume that cannot grow. It is used at its present size, since its data must stay accessible, and the next
// stage or NodeExpandVolume tries again.
func (n *node) stayedSmall(v *backend.Volume, err error) {
	n.Log.Error("a volume cannot grow and is used at its present size", "volume", v.ID, "size", v.Size, "error", err)
	n.observe(v, backend.NotGrown, fmt.Sprintf("the volume %s: %v", stillSmall(v), err))
}

// stillSmall says that a file system is smaller than its volume, and how it grows.
func stillSmall(v *backend.Volume) string {
	return fmt.Sprintf("has %s, and its file system less: delete all pods that use it on this node, and it grows when the next one starts", backend.Readable(v.Size))
}

// observe reports to the backend what was found wrong with a volume.
func (n *node) observe(v *backend.Volume, reason backend.HealthReason, message string) {
	if b, ok := n.Backend.(backend.HealthObserver); ok {
		b.ObserveHealth(v.ID, backend.Condition{Abnormal: true, Reason: reason, Message: message})
	}
}
