package kube

import (
	"context"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
)

// Refusal is why an informer may not read what it watches. A right that is taken away leaves its cache as it was.
type Refusal struct {
	informer cache.SharedIndexInformer
	last     atomic.Pointer[refused]
}

// refused is a refusal after that version was read.
type refused struct {
	why     error
	version string
}

// FollowRefusal follows that of an informer that has not started. It calls changed for a refusal that does not repeat the
// last one, such as that of a list after that of a watch, which has other words.
func FollowRefusal(informer cache.SharedIndexInformer, changed func(error)) (*Refusal, error) {
	f := &Refusal{informer: informer}
	return f, informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		if !apierrors.IsForbidden(err) { // other errors end a watch for a moment only
			cache.DefaultWatchErrorHandler(ctx, r, err)
			return
		}
		now := &refused{err, informer.LastSyncResourceVersion()}
		if before := f.last.Swap(now); before == nil || before.version != now.version {
			changed(err)
		}
	})
}

// Err is nil where nothing is refused any more: a list or a change has arrived since, and with it another version.
func (f *Refusal) Err() error {
	if last := f.last.Load(); last != nil && last.version == f.informer.LastSyncResourceVersion() {
		return last.why
	}
	return nil
}
