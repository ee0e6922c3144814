package driver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/crashpoint"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/parameters"
)

// An inline ephemeral volume lives as long as one pod: publishing makes it, unpublishing removes it.

// ephemeralKey marks such a volume, in the context that the kubelet sends and in the labels of the volume.
const ephemeralKey = reserved + "ephemeral"

// ephemeralHandle is the form of the ids that the kubelet gives to inline volumes: longer than an ID can be, so no
// other volume's.
var ephemeralHandle = regexp.MustCompile(`^csi-[0-9a-f]{64}$`)

var podKeys = []string{reserved + "pod.name", reserved + "pod.namespace", podUIDKey}

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
		_, err := n.Backend.Get(ctx, id)
		fresh := backend.IsAbsent(err)
		switch {
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
		if !madeForPod(v) {
			return fmt.Errorf("%w: volume %s was not made as an inline ephemeral volume", backend.ErrExists, v.ID)
		}
		return n.remembered(ctx, v, fresh, explain(v, n.mountEphemeral(ctx, v, a, req)))
	})
}

// remembered is the answer to a volume that was made and could not be published. After one that the kubelet takes as final
// it forgets the volume and never unpublishes it, so such a one is only given once the volume is gone again. One that was
// there before may have content of the pod, from before a restart of the node, and stays.
func (n *node) remembered(ctx context.Context, v *backend.Volume, fresh bool, cause error) error {
	if _, is := errors.AsType[elsewhereError](cause); is || cause == nil || !isFinal(cause) {
		return cause
	}
	err := errors.New("it was there before and is kept for its pod")
	if fresh {
		err = n.deleteUnused(ctx, v)
	}
	if err == nil {
		return cause
	}
	return fmt.Errorf("%w: inline ephemeral volume %s cannot be mounted for its pod: %v; the volume stays: %v", backend.ErrUnavailable, v.ID, cause, err)
}

// elsewhereError is about a volume that is published at another target, by which it is known.
type elsewhereError struct{ error }

func (e elsewhereError) Unwrap() error { return e.error }

// deleteUnused deletes a volume unless something on this host has it.
func (n *node) deleteUnused(ctx context.Context, v *backend.Volume) error {
	p, err := n.stateOf(v)
	if err != nil {
		p = &mountState{id: v.ID}
	}
	p.byName = true
	mounts, err := p.mounts()
	if err != nil {
		return err
	}
	if len(mounts) > 0 {
		return fmt.Errorf("it is mounted at %s", mounts[0].Target)
	}
	if len(p.devices) > 0 { // in a mount namespace that is not seen from here, or for a moment after an attempt to mount it
		return fmt.Errorf("it is attached to %v", slices.Collect(maps.Keys(p.devices)))
	}
	return n.Backend.Delete(ctx, v.ID)
}

// mountEphemeral mounts the volume at its one target.
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
	p, err := n.stateOf(v)
	if err != nil {
		return err
	}
	m, err := p.at(target)
	switch {
	case err != nil:
		return err
	case m != nil && m.ReadOnly != a.readOnly():
		return otherwise(v.ID, m, a.readOnly())
	case m != nil:
		return errors.Join(p.complete(ctx, a, m), giveToGroup(ctx, p, a, m, a.readOnly()))
	}
	if err := checkAlone(p, a, target, target); err != nil {
		return elsewhereError{err}
	}
	undo, err := makeTarget(target, backend.Filesystem)
	if err != nil {
		return err
	}
	if err := p.mount(ctx, a, target); err != nil {
		undo()
		return err
	}
	crashpoint.Here(crashpoint.PublishBound)
	return giveToGroup(ctx, p, a, &nodeops.Mount{Target: target}, a.readOnly())
}

// deleteEphemeral removes the volume if it was made for its pod.
func (n *node) deleteEphemeral(ctx context.Context, id backend.ID) error {
	v, err := within(ctx, n, &n.deleted, id, true, func(ctx context.Context) (*backend.Volume, error) { return n.Backend.Get(ctx, id) })
	if backend.IsAbsent(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if !madeForPod(v) {
		return nil
	}
	return n.Backend.Delete(ctx, id)
}

// madeForPod says so of a volume with the id of an inline one also where it is damaged beyond reading.
func madeForPod(v *backend.Volume) bool {
	damaged := v.Condition.Abnormal && v.Size == 0 && len(v.Labels) == 0
	return Ephemeral(v) || damaged
}
