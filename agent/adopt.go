package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
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
	there, err := a.Client.HoldfastV1().Volumes().Get(ctx, string(id), metav1.GetOptions{})
	switch {
	case err == nil:
		return a.elsewhere(key{v1.SourceVolume, string(id)}, there.Spec.Node)
	case !apierrors.IsNotFound(err):
		return err
	}
	o := &v1.Volume{
		ObjectMeta: found(id),
		Spec: v1.VolumeSpec{
			Name: cmp.Or(v.Name, string(id)), Node: a.Node, Pool: v.Pool, Mode: v1.Mode(v.Mode), FSType: v1.FSType(v.FSType),
			Provisioning: v1.Provisioning(v.Provisioning), MkfsOptions: v.MkfsOptions, Inodes: int64(v.Inodes), Labels: v.Labels,
			Source: sourceObject(v.Source), Claim: claimOf(v.Labels), Shared: v1.ServerOf(a.Node) != "",
			OnNodeLoss: v1.OnNodeLoss(v.OnNodeLoss),
		},
	}
	if v.Size > 0 {
		o.Spec.Size.Required = quantity(v.Size)
	}
	if o, err = a.Client.HoldfastV1().Volumes().Create(ctx, o, metav1.CreateOptions{FieldManager: fieldManager}); err != nil {
		return ignoreExists(err)
	}
	a.tellAdopted(o, key{v1.SourceVolume, string(id)}, o.Spec.Claim)
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
	there, err := a.Client.HoldfastV1().Snapshots().Get(ctx, string(id), metav1.GetOptions{})
	switch {
	case err == nil:
		return a.elsewhere(key{v1.SourceSnapshot, string(id)}, there.Spec.Node)
	case !apierrors.IsNotFound(err):
		return err
	}
	const unknown = "unknown" // of one whose metadata is damaged
	o := &v1.Snapshot{
		ObjectMeta: found(id),
		Spec:       v1.SnapshotSpec{Name: cmp.Or(s.Name, string(id)), Source: cmp.Or(string(s.Source), unknown), Node: a.Node},
	}
	if s.Group != "" && a.grouper != nil {
		if o.Spec.Group, err = a.foundGroup(ctx, s.Group); err != nil {
			return err
		}
	}
	if o, err = a.Client.HoldfastV1().Snapshots().Create(ctx, o, metav1.CreateOptions{FieldManager: fieldManager}); err != nil {
		return ignoreExists(err)
	}
	a.tellAdopted(o, key{v1.SourceSnapshot, string(id)}, "")
	return nil
}

// tellAdopted says why an object was written for what is on the disk. That of what has just been made there needs no
// event.
func (a *Agent) tellAdopted(o runtime.Object, k key, claim string) {
	switch {
	case a.work.wasForgotten(k):
		a.log.Info("wrote an object again that was deleted without a request to delete its data", "kind", k.kind, "id", k.name)
		a.eventf(o, core.EventTypeWarning, v1.ReasonForgotten, "%s", forgotten(k, claim, a.Node))
	case a.work.wasMade(k):
		a.log.Debug("wrote the object of what was made without one", "kind", k.kind, "id", k.name)
	default:
		a.log.Info("found on disk without an object", "kind", k.kind, "id", k.name)
		a.eventf(o, core.EventTypeNormal, "Adopted", "found on the disk of node %s without an object", a.Node)
	}
}

func (a *Agent) foundGroup(ctx context.Context, id backend.ID) (*v1.SnapshotGroup, error) {
	g, err := a.grouper.GetGroup(ctx, id)
	if err != nil {
		return nil, err
	}
	group := &v1.SnapshotGroup{Name: g.Name}
	for _, m := range g.Snapshots {
		group.Sources = append(group.Sources, string(m.Source))
	}
	return group, nil
}

func found(id backend.ID) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: string(id), Labels: map[string]string{v1.AdoptedLabel: "true"}, Finalizers: []string{v1.AgentFinalizer}}
}

// elsewhere leaves alone what has an object already: of this node, which the watch is about to bring, or of another,
// from which the disk may have been moved here.
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
	return fmt.Errorf("writing the object of what was found on disk: %w", err)
}

func claimOf(labels map[string]string) string {
	name := labels["csi.storage.k8s.io/pvc/name"]
	if name == "" {
		return ""
	}
	return labels["csi.storage.k8s.io/pvc/namespace"] + "/" + name
}
