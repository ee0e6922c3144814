package web

import (
	"errors"
	"fmt"
	"log/slog"

	"k8s.io/client-go/tools/cache"

	"github.com/holdfast-storage/holdfast/kube"
)

// optional is the watch of a kind that the controller may have no right to read. The other kinds are served without it.
type optional struct {
	informer cache.SharedIndexInformer
	refusal  *kube.Refusal
}

// follow logs why the kind may not be read once rather than at each attempt.
func (o *optional) follow(kind string, log *slog.Logger) (err error) {
	last := ""
	o.refusal, err = kube.FollowRefusal(o.informer, func(refusal error) {
		if isNew(refusal, &last) {
			log.Warn("the API cannot show a kind: apply the manifest of this release, which lets the controller read it", "kind", kind, "error", refusal)
		}
	})
	return err
}

// hidden is why the kind cannot be shown; nil if it can.
func (o *optional) hidden() error {
	if why := o.refusal.Err(); why != nil {
		return fmt.Errorf("the controller has no right to read them, apply the manifest of this release: %w", why)
	}
	if !o.informer.HasSynced() {
		return errors.New("they could not be read so far")
	}
	return nil
}
