package agent

import (
	"context"
	"fmt"

	core "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
)

// reportUnreadable reports an object that cannot be decoded. It and its data stay as they are: the volume is neither
// created nor removed, nor adopted again.
func (a *Agent) reportUnreadable(ctx context.Context, k key, o v1beta1.Object) error {
	written, err := a.unreadable.Report(ctx, a.Client, o, fieldManager)
	if written == nil {
		return err
	}
	switch written := written.(type) {
	case *v1beta1.Volume:
		a.volumes.Wrote(written)
	case *v1beta1.Snapshot:
		a.snapshots.Wrote(written)
	}
	a.log.Warn("left alone: its object cannot be decoded", "kind", k.kind, "id", k.name, "error", o.Unreadable())
	a.Events.Eventf(o, core.EventTypeWarning, v1beta1.ReasonUnreadable, "%s", kube.UnreadableMessage(o))
	return nil
}

// readable refuses to act on the requests of a StorageNode that cannot be decoded: it may lack fields.
func readable(n *v1beta1.StorageNode) error {
	if err := n.Unreadable(); err != nil {
		return fmt.Errorf("StorageNode %s cannot be read: %w", n.Name, err)
	}
	return nil
}
