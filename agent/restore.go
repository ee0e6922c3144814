package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/kube"
)

// A restore is requested in the spec of the StorageNode. The volume goes back from the trash to the disk, its object is
// written, and then the entry is removed: if an agent is killed in between, the next one finds the volume on the disk
// and is done.

// restoreOf returns the request to restore a volume; nil if there is none. A failed request is not retried.
func restoreOf(n *v1beta1.StorageNode, name string) *v1beta1.RestoreRequest {
	if n == nil {
		return nil
	}
	return v1beta1.Find(n.Spec.Restore, func(r v1beta1.RestoreRequest) bool { return r.Name == name && r.Error == "" })
}

// endRestore removes the request to restore a volume that is on the disk. It runs before anything that may remove the
// volume: a remaining request would restore a volume that was deleted after it.
func (a *Agent) endRestore(ctx context.Context, k key, o *v1beta1.Volume) error {
	n := a.nodeObject()
	if restoreOf(n, k.name) == nil {
		return nil
	}
	_, err := a.Backend.Get(ctx, k.id())
	if errors.Is(err, backend.ErrNotFound) {
		return nil
	}
	if err == nil && o == nil {
		err = a.adoptVolume(ctx, k.id())
	}
	if err != nil {
		return err
	}
	return a.answerRestore(ctx, k.name, "")
}

// restore takes a volume that is not on the disk out of the trash, if that is requested. The cache may be behind, so
// the request is read from the API server.
func (a *Agent) restore(ctx context.Context, k key) (restored bool, err error) {
	if restoreOf(a.nodeObject(), k.name) == nil {
		return false, nil
	}
	refusal, err := a.mayRestore(ctx, k)
	switch {
	case errors.Is(err, errWaits), apierrors.IsNotFound(err): // an object must be deleted first, or the request is gone
		return false, nil
	case err != nil:
		return false, err
	case refusal != "":
		return false, a.refuseRestore(ctx, k.name, refusal)
	}
	n, err := a.Client.HoldfastV1beta1().StorageNodes().Get(ctx, a.Node, metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	request := restoreOf(n, k.name)
	switch {
	case request == nil:
		return false, nil
	case givenUp(n, k): // an earlier object of it; that is discarded first, or the volume would be removed again
		return false, fmt.Errorf("volume %s is to be discarded before it can be restored", k.name)
	}
	err = a.undelete(ctx, k)
	if code := backend.CodeOf(err); err != nil && (code.Permanent() || code == backend.CodePrecondition) {
		return false, a.refuseRestore(ctx, k.name, err.Error())
	}
	if err == nil {
		err = a.adoptVolume(ctx, k.id())
	}
	if err == nil {
		err = a.answerRestore(ctx, k.name, "")
	}
	if err != nil {
		return false, err
	}
	a.log.Info("restored from the trash", "kind", k.kind, "id", k.name, "requestedBy", request.RequestedBy)
	a.Events.Eventf(n, core.EventTypeNormal, v1beta1.ReasonRestored, "volume %s was restored from the trash of %s, as %s requested", k.name, v1beta1.SiteOf(a.Node), cmp.Or(request.RequestedBy, "an unnamed user"))
	a.node.change()
	return true, nil
}

// mayRestore checks the object that has the volume's name. The refusal is permanent; errWaits means that the deletion
// of the object triggers the next try.
func (a *Agent) mayRestore(ctx context.Context, k key) (refusal string, err error) {
	o, err := a.Client.HoldfastV1beta1().Volumes().Get(ctx, k.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", err
	case o.Spec.Node != a.Node:
		return fmt.Sprintf("Volume %s is on node %s; delete that one first", k.name, o.Spec.Node), nil
	case o.DeletionTimestamp != nil:
		return "", errWaits
	case !wasReal(o):
		return fmt.Sprintf("a new volume of the name %s is being created; delete it first", k.name), nil
	}
	if err := a.lost(ctx, placeOf(o)); !errors.Is(err, errMissing) {
		return "", err
	}
	return "", nil
}

// undelete does nothing for a volume that is back already.
func (a *Agent) undelete(ctx context.Context, k key) error {
	_, err := a.Backend.Undelete(ctx, k.id())
	switch {
	case errors.Is(err, backend.ErrExists):
		return nil
	case errors.Is(err, backend.ErrNotFound):
		if out := a.anyPoolOut(ctx); out != nil {
			return fmt.Errorf("%w: %w", backend.ErrUnavailable, out)
		}
	}
	return err
}

// refuseRestore records why a volume is not restored, for good.
func (a *Agent) refuseRestore(ctx context.Context, name, refusal string) error {
	const most = 4096
	if err := a.answerRestore(ctx, name, refusal[:min(len(refusal), most)]); err != nil {
		return err
	}
	a.log.Warn("not restored from the trash", "kind", v1beta1.SourceVolume, "id", name, "error", refusal)
	if n := a.nodeObject(); n != nil {
		a.Events.Eventf(n, core.EventTypeWarning, v1beta1.ReasonRestoreFailed, "volume %s is not restored: %s", name, refusal)
	}
	return nil
}

// answerRestore removes the requests to restore a volume, or writes the refusal into them.
func (a *Agent) answerRestore(ctx context.Context, name, refusal string) error {
	return kube.EditNode(ctx, a.Client, a.Node, fieldManager, func(n *v1beta1.StorageNode) (spec map[string]any, err error) {
		if restoreOf(n, name) == nil {
			return nil, nil
		}
		rest := []v1beta1.RestoreRequest{}
		for _, r := range n.Spec.Restore {
			if r.Name == name && r.Error == "" {
				if refusal == "" {
					continue
				}
				r.Error = refusal
			}
			rest = append(rest, r)
		}
		return map[string]any{"restore": rest}, nil
	})
}
