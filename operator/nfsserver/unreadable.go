package nfsserver

import (
	"context"

	core "k8s.io/api/core/v1"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
)

// tellUnreadable leaves a server as it runs that cannot be decoded, being deleted or not.
func (r *Controller) tellUnreadable(ctx context.Context, s *v1.NFSServer) error {
	written, err := r.unreadable.Report(ctx, r.Client, s, apply.FieldManager)
	if written == nil {
		return err
	}
	r.written.Wrote(written.(*v1.NFSServer))
	r.Events.Event(s, core.EventTypeWarning, v1.ReasonUnreadable, kube.Shorten(kube.UnreadableMessage(s), kube.LongestEvent))
	return nil
}

// isOn says whether something may be on a server: what cannot be decoded is on each, if its node is not known.
func isOn(o v1.Object, node string, s *v1.NFSServer) bool {
	return node == s.NodeName() || node == "" && o.Unreadable() != nil
}
