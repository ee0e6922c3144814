package driver

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/crashpoint"
	"github.com/holdfast-storage/holdfast/parameters"
)

// An inline ephemeral volume lives as long as one pod: publishing makes it, unpublishing removes it.

// ephemeralKey marks such a volume, in the context that the kubelet sends and in the labels of the volume.
const ephemeralKey = reserved + "ephemeral"

// ephemeralHandle is the form of the ids that the kubelet gives to inline volumes: longer than an ID can be, so no
// other volume's.
var ephemeralHandle = regexp.MustCompile(`^csi-[0-9a-f]{64}$`)

var podKeys = []string{reserved + "pod.name", reserved + "pod.namespace", reserved + "pod.uid"}

// parseHandle accepts the id of a volume, inline ephemeral ones included.
func parseHandle(s string) (id backend.ID, ephemeral bool, err error) {
	if ephemeralHandle.MatchString(s) {
		id, err = backend.IDFor(s)
		return id, true, err
	}
	id, err = parseID("volume_id", s)
	return id, false, err
}

// Ephemeral says whether a volume was made for one pod and goes with it.
func Ephemeral(v *backend.Volume) bool { return v.Labels[ephemeralKey] == "true" }

func isEphemeral(volumeContext map[string]string) bool { return volumeContext[ephemeralKey] == "true" }

// ephemeralSpec reads the attributes that a pod gives. The context may hold the pod's tokens: values of keys that
// are not ours are never looked at.
func ephemeralSpec(req *csi.NodePublishVolumeRequest, a access) (backend.VolumeSpec, error) {
	spec, err := parseClass(&parameters.Inline, req.GetVolumeContext())
	if err != nil {
		return spec, err
	}
	spec.Name, spec.Ephemeral = req.GetVolumeId(), true
	for _, key := range append(podKeys, ephemeralKey) {
		if value := req.GetVolumeContext()[key]; value != "" {
			spec.Labels[key] = value
		}
	}
	if err := a.suits(backend.ItsHost); err != nil {
		return spec, err
	}
	return spec, a.apply(&spec)
}

func (n *node) publishEphemeral(ctx context.Context, id backend.ID, a access, req *csi.NodePublishVolumeRequest) error {
	if a.mode == backend.Block {
		return fmt.Errorf("%w volume_capability: inline ephemeral volumes are mounted, never block; use a generic ephemeral volume", backend.ErrInvalid)
	}
	spec, err := ephemeralSpec(req, a)
	if err != nil {
		return err
	}
	return n.do(ctx, id, "publish", func(ctx context.Context) error {
		// An existing one stays usable when it is no longer allowed.
		switch _, err := n.Backend.Get(ctx, id); {
		case errors.Is(err, backend.ErrNotFound) || errors.Is(err, backend.ErrUnavailable): // the answer while any pool is out of reach
			if err := n.permit(ctx, &spec); err != nil {
				return err
			}
		case err != nil:
			return err
		}
		v, err := n.Backend.Create(ctx, spec)
		if err != nil {
			return err
		}
		if !Ephemeral(v) {
			return fmt.Errorf("%w: volume %s was not made as an inline ephemeral volume", backend.ErrExists, v.ID)
		}
		return explain(v, n.mountEphemeral(ctx, v, a, req))
	})
}

// mountEphemeral mounts the volume at its one target. When it cannot, the volume stays: the kubelet tries again or
// unpublishes.
func (n *node) mountEphemeral(ctx context.Context, v *backend.Volume, a access, req *csi.NodePublishVolumeRequest) error {
	if req.GetReadonly() {
		a.flags = append(slices.DeleteFunc(slices.Clone(a.flags), func(f string) bool { return f == "rw" }), "ro")
	}
	target, err := resolve(req.GetTargetPath())
	if err != nil {
		return err
	}
	if err := accessible(v); err != nil {
		return err
	}
	p, err := look(v)
	if err != nil {
		return err
	}
	m, err := p.at(target)
	switch {
	case err != nil:
		return err
	case m != nil && m.ReadOnly != a.readOnly():
		return otherwise("published", v.ID, m, a.readOnly())
	case m != nil:
		if err := n.growToSize(ctx, v, a, target, nil); err != nil {
			return err
		}
		return giveToGroup(ctx, a, target, a.readOnly())
	}
	if err := checkAlone(p, a, target, target); err != nil {
		return err
	}
	undo, err := makeTarget(target, backend.Filesystem)
	if err != nil {
		return err
	}
	if err := n.mount(ctx, v, a, target); err != nil {
		undo()
		return err
	}
	crashpoint.Here(crashpoint.PublishBound)
	return giveToGroup(ctx, a, target, a.readOnly())
}

// deleteEphemeral removes the volume if it was made for its pod.
func (n *node) deleteEphemeral(ctx context.Context, id backend.ID) error {
	v, err := n.Backend.Get(ctx, id)
	if errors.Is(err, backend.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	damaged := v.Condition.Abnormal && v.Size == 0 && len(v.Labels) == 0
	if !Ephemeral(v) && !damaged {
		return nil
	}
	return n.Backend.Delete(ctx, id)
}
