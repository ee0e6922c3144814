package agent

import (
	"context"
	"errors"
	"fmt"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-storage/holdfast/api/convert"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/kube"
)

// adoptVolume writes an object for a volume on disk that has none. The object's status follows when the watch brings it.
func (a *Agent) adoptVolume(ctx context.Context, id backend.ID) error {
	v, err := a.Backend.Get(ctx, id)
	switch {
	case errors.Is(err, backend.ErrNotFound):
		return nil
	case err != nil:
		return err
	case a.Foreign != nil && a.Foreign(v):
		return nil
	}
	k, volumes := key{v1beta1.SourceVolume, string(id)}, a.Client.HoldfastV1beta1().Volumes()
	there, err := kube.Live(ctx, volumes.Get, k.name)
	switch {
	case err != nil:
		return err
	case there != nil:
		a.leaveAlone(k, there.Spec.Node)
		return nil
	}
	if may, err := a.mayAdopt(ctx, k); err != nil || !may {
		return err
	}
	o, err := volumes.Create(ctx, &v1beta1.Volume{ObjectMeta: found(id), Spec: convert.FoundVolume(a.Node, v)}, created)
	if err == nil {
		a.recordAdopted(o, k, o.Spec.ClaimRef.String())
	}
	return ignoreExists(err)
}

func (a *Agent) adoptSnapshot(ctx context.Context, id backend.ID) error {
	s, err := a.Backend.GetSnapshot(ctx, id)
	if errors.Is(err, backend.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	k, snapshots := key{v1beta1.SourceSnapshot, string(id)}, a.Client.HoldfastV1beta1().Snapshots()
	there, err := kube.Live(ctx, snapshots.Get, k.name)
	switch {
	case err != nil:
		return err
	case there != nil:
		a.leaveAlone(k, there.Spec.Node)
		return nil
	}
	if may, err := a.mayAdopt(ctx, k); err != nil || !may {
		return err
	}
	var group *v1beta1.SnapshotGroup
	if s.Group != "" && a.grouper != nil {
		g, err := a.grouper.GetGroup(ctx, s.Group)
		if err != nil {
			return err
		}
		group = convert.FromGroup(g.Spec())
	}
	o, err := snapshots.Create(ctx, &v1beta1.Snapshot{ObjectMeta: found(id), Spec: convert.FoundSnapshot(a.Node, s, group)}, created)
	if err == nil {
		a.recordAdopted(o, k, "")
	}
	return ignoreExists(err)
}

var created = metav1.CreateOptions{FieldManager: fieldManager}

// recordAdopted writes an event that says why an object was written for an entry on the disk. The object of a new entry
// needs no event.
func (a *Agent) recordAdopted(o runtime.Object, k key, claim string) {
	switch {
	case a.work.wasForgotten(k):
		a.log.Info("wrote an object again that was deleted without a request to delete its data", "kind", k.kind, "id", k.name)
		a.Events.Eventf(o, core.EventTypeWarning, v1beta1.ReasonForgotten, "%s", forgotten(k, claim, a.Node))
	case has(&a.work.made, k):
		a.log.Debug("wrote the object of a volume that was created without one", "kind", k.kind, "id", k.name)
	default:
		a.log.Info("found on disk without an object", "kind", k.kind, "id", k.name)
		a.Events.Eventf(o, core.EventTypeNormal, "Adopted", "found in the storage of %s without an object", v1beta1.SiteOf(a.Node))
	}
}

func found(id backend.ID) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: string(id), Labels: map[string]string{v1beta1.AdoptedLabel: "true"}, Finalizers: []string{v1beta1.AgentFinalizer}}
}

// leaveAlone is for an entry that has an object already: of this node, whose event has not arrived yet, or of another, from
// which the disk may have been moved here.
func (a *Agent) leaveAlone(k key, node string) {
	if node != a.Node {
		a.log.Warn("on this disk, but its object says it is on another node; left alone", "kind", k.kind, "id", k.name, "node", node)
	}
}

func ignoreExists(err error) error {
	if err == nil || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return fmt.Errorf("writing the object of an entry found on disk: %w", err)
}
