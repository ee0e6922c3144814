package bench

import (
	"context"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// source lists and watches objects of one kind; clients of client-go implement it.
type source[L runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// retryDelay is the delay before a retry.
const retryDelay = 100 * time.Millisecond

// follow reports changes until ctx ends, of all objects or of one by its name, with the time of their arrival. Unlike an
// informer, a reflector does not delay them in queues.
func follow[O any, L runtime.Object](
	ctx context.Context, b *Bench, what, name string, from source[L], report func(o *O, gone bool, at time.Time),
) {
	selected := func(o metav1.ListOptions) metav1.ListOptions {
		if name != "" {
			o.FieldSelector = "metadata.name=" + name
		}
		return o
	}
	api := lister{&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if o.ResourceVersion == "0" {
				o.ResourceVersion = "" // otherwise the API server ignores the limit of a page
			}
			list, err := from.List(ctx, selected(o))
			b.seen.reached(what, false, err)
			if err != nil {
				return list, err
			}
			return list, meta.EachListItem(list, func(o runtime.Object) error {
				strip(o)
				return nil
			})
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := from.Watch(ctx, selected(o))
			b.seen.reached(what, true, err)
			return w, err
		},
	}}
	changes := reporter{cache.NewStore(cache.MetaNamespaceKeyFunc), func(object any, gone bool) {
		at := time.Now()
		if o, ok := object.(*O); ok {
			b.seen.update(func() { report(o, gone, at) })
		}
	}}
	b.seen.update(func() { b.seen.opening[what] = true })
	r := cache.NewReflectorWithOptions(api, nil, changes, cache.ReflectorOptions{Name: what, Backoff: &wait.Backoff{Duration: retryDelay}})
	b.watching.Go(func() { r.RunWithContext(ctx) })
}

// lister is without streamed lists: when the watch of one is open, its changes may have to wait for the end of the list.
type lister struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is for reflectors.
func (lister) IsWatchListSemanticsUnSupported() bool { return true }

// reporter reports what a reflector puts into its store.
type reporter struct {
	cache.Store // what exists
	report      func(object any, gone bool)
}

// strip removes what no event needs from volumes, which are those of the whole cluster.
func strip(object any) {
	v, ok := object.(*core.PersistentVolume)
	if !ok {
		return
	}
	*v = core.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: v.Name, DeletionTimestamp: v.DeletionTimestamp},
		Spec:       core.PersistentVolumeSpec{ClaimRef: v.Spec.ClaimRef, PersistentVolumeReclaimPolicy: v.Spec.PersistentVolumeReclaimPolicy},
		Status:     core.PersistentVolumeStatus{Phase: v.Status.Phase},
	}
}

// Add reports what exists.
func (r reporter) Add(o any) error {
	strip(o)
	r.report(o, false)
	return r.Store.Add(o)
}

// Update reports what exists.
func (r reporter) Update(o any) error { return r.Add(o) }

// Delete reports what is gone.
func (r reporter) Delete(o any) error {
	r.report(o, true)
	return r.Store.Delete(o)
}

// Replace reports what exists and, if changes were lost, what is gone.
func (r reporter) Replace(all []any, version string) error {
	before := r.List()
	err := r.Store.Replace(all, version)
	for _, o := range all {
		r.report(o, false)
	}
	for _, o := range before {
		if _, exists, _ := r.Get(o); !exists {
			r.report(o, true)
		}
	}
	return err
}
