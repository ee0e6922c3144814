package provisioner

import (
	"context"
	"slices"
	"time"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// replay is an informer that can send all existing objects to its listener again.
type replay struct {
	cache.SharedIndexInformer
	listener cache.ResourceEventHandler // the library's, which it adds before anything runs
}

// AddEventHandlerWithResyncPeriod remembers the only listener.
func (r *replay) AddEventHandlerWithResyncPeriod(h cache.ResourceEventHandler, every time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	r.listener = h
	return r.SharedIndexInformer.AddEventHandlerWithResyncPeriod(h, every)
}

// asFound is a store that ignores writes of the library. The library stores objects that it has written, which would
// hide later changes until the next event; the watch delivers them soon enough.
type asFound struct{ cache.Store }

func (asFound) Add(any) error { return nil }

func (asFound) Update(any) error { return nil }

func (r *replay) GetStore() cache.Store { return asFound{r.SharedIndexInformer.GetStore()} }

// again sends all objects that f chooses to the listener.
func (r *replay) again(f func(object any) bool) {
	for _, object := range r.GetStore().List() {
		if f(object) {
			r.listener.OnAdd(object, false)
		}
	}
}

func anything(any) bool { return true }

// mostWaiting is how many of the claims that did not fit are tried again as soon as there is space. Any more are tried after
// their back-off.
const mostWaiting = 4096

// stopsWaiting chooses each claim that did not fit once.
func (p *Provisioner) stopsWaiting(object any) bool {
	c, ok := object.(*core.PersistentVolumeClaim)
	if !ok {
		return false
	}
	_, waits := p.waiting.Get(c.UID)
	p.waiting.Remove(c.UID)
	return waits
}

// chosen lists and watches objects and caches only the relevant ones. One that is no longer relevant is reported as
// deleted.
func chosen[L runtime.Object](client kubernetes.Interface, list func(context.Context, metav1.ListOptions) (L, error),
	watches func(context.Context, metav1.ListOptions) (watch.Interface, error), concerns func(runtime.Object) bool,
) cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			all, err := list(ctx, o)
			if err != nil {
				return nil, err
			}
			objects, err := meta.ExtractList(all)
			if err != nil {
				return nil, err
			}
			return all, meta.SetList(all, slices.DeleteFunc(objects, func(o runtime.Object) bool { return !concerns(o) }))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := watches(ctx, o)
			if err != nil {
				return nil, err
			}
			return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
				switch {
				case e.Type == watch.Added && !concerns(e.Object):
					return e, false
				case e.Type == watch.Modified && !concerns(e.Object):
					e.Type = watch.Deleted
				}
				return e, true
			}), nil
		},
	}, client)
}

func informer(source cache.ListerWatcher, example runtime.Object, resync time.Duration) *replay {
	i := cache.NewSharedIndexInformer(source, example, resync, cache.Indexers{})
	_ = i.SetTransform(withoutManagedFields) // it fails only once the informer has started
	return &replay{SharedIndexInformer: i}
}

func withoutManagedFields(object any) (any, error) {
	if m, err := meta.Accessor(object); err == nil && m.GetManagedFields() != nil {
		m.SetManagedFields(nil)
	}
	return object, nil
}

func (p *Provisioner) makeInformers() {
	claims, volumes := p.Client.CoreV1().PersistentVolumeClaims(""), p.Client.CoreV1().PersistentVolumes()
	classes := p.Client.StorageV1().StorageClasses()
	p.claims = informer(chosen(p.Client, claims.List, claims.Watch, p.claimConcerns), &core.PersistentVolumeClaim{}, p.Resync)
	p.volumes = informer(chosen(p.Client, volumes.List, volumes.Watch, p.volumeConcerns), &core.PersistentVolume{}, p.Resync)
	p.classes = informer(chosen(p.Client, classes.List, classes.Watch, p.classConcerns), &storage.StorageClass{}, p.Resync)
}

func (p *Provisioner) claimConcerns(o runtime.Object) bool {
	c, ok := o.(*core.PersistentVolumeClaim)
	return ok && p.wanted(c)
}

// wanted says whether a claim is for a provisioner of this name.
func (p *Provisioner) wanted(c *core.PersistentVolumeClaim) bool {
	name, ok := c.Annotations[wantedOf]
	if !ok {
		name = c.Annotations[wantedOfBefore]
	}
	return name == p.Name
}

// volumeConcerns excludes PersistentVolumes of other servers, so that their finalizers are not touched here, except
// those that wait for deletion: they get an event if their server does not delete them.
func (p *Provisioner) volumeConcerns(o runtime.Object) bool {
	v, ok := o.(*core.PersistentVolume)
	if !ok || v.Annotations[v1beta1.ProvisionedByAnnotation] != p.Name {
		return false
	}
	waits := v.Status.Phase == core.VolumeReleased && v.Spec.PersistentVolumeReclaimPolicy == core.PersistentVolumeReclaimDelete
	return waits || v.Annotations[v1beta1.NFSServerAnnotation] == p.Identity
}

func (p *Provisioner) classConcerns(o runtime.Object) bool {
	c, ok := o.(*storage.StorageClass)
	return ok && c.Provisioner == p.Name
}
