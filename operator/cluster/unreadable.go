package cluster

import (
	"context"
	"time"

	core "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
)

// keepLast keeps the objects of the last readable spec, for a StorageCluster that cannot be decoded, being deleted or
// not: nothing is pruned or removed.
func (r *Controller) keepLast(ctx context.Context, c *v1beta1.StorageCluster) (time.Duration, error) {
	written, err := r.unreadable.Report(ctx, r.Client, c, apply.FieldManager)
	if err != nil {
		return 0, err
	}
	if written != nil {
		r.written.Wrote(written.(*v1beta1.StorageCluster))
		message := kube.UnreadableMessage(c)
		r.Events.Event(c, core.EventTypeWarning, v1beta1.ReasonUnreadable, kube.Shorten(message, kube.LongestEvent))
		r.Log.Warn("recorded as an event", "cluster", c.Name, "reason", v1beta1.ReasonUnreadable, "message", message)
	}
	last, again, err := r.withoutOwn(ctx, r.good[c.Name])
	if err != nil {
		return 0, err
	}
	out := r.apply(ctx, c, last)
	return kube.Sooner(again, out.Again), out.Err()
}
