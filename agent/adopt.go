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
	there, err := a.Client.HoldfastV1beta1().Volumes().Get(ctx, string(id), metav1.GetOptions{})
	switch {
	case err == nil:
		return a.elsewhere(key{v1beta1.SourceVolume, string(id)}, there.Spec.Node)
	case !apierrors.IsNotFound(err):
		return err
	}
	if may, err := a.mayAdopt(ctx, key{v1beta1.SourceVolume, string(id)}); err != nil || !may {
		return err
	}
	o := &v1beta1.Volume{ObjectMeta: found(id), Spec: convert.FoundVolume(a.Node, v)}
	if o, err = a.Client.HoldfastV1beta1().Volumes().Create(ctx, o, metav1.CreateOptions{FieldManager: fieldManager}); err != nil {
		return ignoreExists(err)
	}
	a.recordAdopted(o, key{v1beta1.SourceVolume, string(id)}, o.Spec.ClaimRef.String())
	return nil
}

func (a *Agent) adoptSnapshot(ctx context.Context, id backend.ID) error {
	s, err := a.snapshotter.GetSnapshot(ctx, id)
	if errors.Is(err, backend.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	there, err := a.Client.HoldfastV1beta1().Snapshots().Get(ctx, string(id), metav1.GetOptions{})
	switch {
	case err == nil:
		return a.elsewhere(key{v1beta1.SourceSnapshot, string(id)}, there.Spec.Node)
	case !apierrors.IsNotFound(err):
		return err
	}
	if may, err := a.mayAdopt(ctx, key{v1beta1.SourceSnapshot, string(id)}); err != nil || !may {
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
	o := &v1beta1.Snapshot{ObjectMeta: found(id), Spec: convert.FoundSnapshot(a.Node, s, group)}
	if o, err = a.Client.HoldfastV1beta1().Snapshots().Create(ctx, o, metav1.CreateOptions{FieldManager: fieldManager}); err != nil {
		return ignoreExists(err)
	}
	a.recordAdopted(o, key{v1beta1.SourceSnapshot, string(id)}, "")
	return nil
}

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

// elsewhere leaves alone an entry that has an object already: of this node, whose event has not arrived yet, or of
// another, from which the disk may have been moved here.
func (a *Agent) elsewhere(k key, node string) error {
	if node != a.Node {
		a.log.Warn("on this disk, but its object says it is on another node; left alone", "kind", k.kind, "id", k.name, "node", node)
	}
	return nil
}

func ignoreExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return fmt.Errorf("writing the object of an entry found on disk: %w", err)
}
