package cluster

import (
	"context"
	"time"

	core "k8s.io/api/core/v1"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
)

// keepLast keeps what the last spec asked for that could be read, for a StorageCluster that cannot be decoded, being
// deleted or not: nothing is pruned or removed.
func (r *Controller) keepLast(ctx context.Context, c *v1.StorageCluster) (time.Duration, error) {
	written, err := r.unreadable.Report(ctx, r.Client, c, apply.FieldManager)
	if err != nil {
		return 0, err
	}
	if written != nil {
		r.written.Wrote(written.(*v1.StorageCluster))
		message := kube.UnreadableMessage(c)
		r.Events.Event(c, core.EventTypeWarning, v1.ReasonUnreadable, kube.Shorten(message, kube.LongestEvent))
		r.Log.Warn("told as an event", "cluster", c.Name, "reason", v1.ReasonUnreadable, "message", message)
	}
	r.mu.Lock()
	last := r.good[c.Name]
	r.mu.Unlock()
	out := r.apply(ctx, c, last)
	return out.Again, out.Err()
}
