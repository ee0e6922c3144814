package web

import (
	"context"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// followed is a watch of one secret and of no other: the right to read that one is enough.
type followed struct {
	namespace, name string
	informer        cache.SharedIndexInformer
	stop            context.CancelFunc
}

// follow calls changed when the secret, or that there is none, is known for the first time, and after each change.
func follow(ctx context.Context, client kubernetes.Interface, namespace, name string, changed func()) (*followed, error) {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
		}))
	f := &followed{namespace: namespace, name: name, informer: factory.Core().V1().Secrets().Informer()}
	registered, err := f.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { changed() },
		UpdateFunc: func(_, _ any) { changed() },
		DeleteFunc: func(any) { changed() },
	})
	if err != nil {
		return nil, err
	}
	ctx, f.stop = context.WithCancel(ctx)
	factory.StartWithContext(ctx)
	go func() {
		if cache.WaitFor(ctx, "", registered.HasSyncedChecker()) {
			changed()
		}
	}()
	return f, nil
}

// secret is nil if there is none. It is not known before it could be read once.
func (f *followed) secret() (s *core.Secret, known bool) {
	if f == nil || !f.informer.HasSynced() {
		return nil, false
	}
	found, _, _ := f.informer.GetIndexer().GetByKey(f.namespace + "/" + f.name) // this index has no errors
	s, _ = found.(*core.Secret)
	return s, true
}

func (f *followed) is(namespace, name string) bool {
	return f != nil && f.namespace == namespace && f.name == name
}

func (f *followed) end() {
	if f != nil {
		f.stop()
	}
}
