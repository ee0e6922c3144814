package agent

import (
	"context"
	"fmt"

	core "k8s.io/api/core/v1"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/kube"
)

// tellUnreadable leaves an object that cannot be decoded, and what it stands for on the disk, as they are: it is neither
// made nor removed, nor adopted once more.
func (a *Agent) tellUnreadable(ctx context.Context, k key, o v1.Object) error {
	written, err := a.unreadable.Report(ctx, a.Client, o, fieldManager)
	if written == nil {
		return err
	}
	a.work.wrote(k, written)
	a.log.Warn("left alone, its object cannot be decoded", "kind", k.kind, "id", k.name, "error", o.Unreadable())
	a.eventf(o, core.EventTypeWarning, v1.ReasonUnreadable, "%s", kube.UnreadableMessage(o))
	return nil
}

// readable refuses to act on what a StorageNode asks for that cannot be decoded: what is missing of it is not known.
func readable(n *v1.StorageNode) error {
	if err := n.Unreadable(); err != nil {
		return fmt.Errorf("StorageNode %s cannot be read: %w", n.Name, err)
	}
	return nil
}
