package kube

import (
	"cmp"
	"context"
	"sync"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// SecretName is the secret that a StorageCluster names, for a Holdfast in a namespace; empty if it names none.
func SecretName(c *v1beta1.StorageCluster, namespace string) types.NamespacedName {
	if c == nil || c.Spec.SecretRef == nil {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: cmp.Or(c.Spec.SecretRef.Namespace, namespace), Name: c.Spec.SecretRef.Name}
}

// SecretWatch follows one secret at a time and no other: the right to read that one is enough.
type SecretWatch struct {
	client  kubernetes.Interface
	changed func()

	mu       sync.Mutex
	name     types.NamespacedName
	informer cache.SharedIndexInformer
	refusal  error
	cancel   context.CancelFunc
}

// NewSecretWatch returns a watch that calls changed when a secret, or that there is none, is known for the first time,
// after each change, and when it may not be read.
func NewSecretWatch(client kubernetes.Interface, changed func()) *SecretWatch {
	return &SecretWatch{client: client, changed: changed, cancel: func() {}}
}

// Get returns a secret, which is watched from now on, and nil if there is none, as for an empty name. known is false
// until it was read once. The refusal says why it may not be read.
func (w *SecretWatch) Get(name types.NamespacedName) (secret *core.Secret, known bool, refusal error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if name != w.name {
		w.cancel()
		w.name, w.informer, w.refusal, w.cancel = name, nil, nil, func() {}
		if name.Name != "" {
			w.refusal = w.follow()
		}
	}
	if name.Name == "" {
		return nil, true, nil
	}
	if !w.informer.HasSynced() {
		return nil, false, w.refusal
	}
	found, _, _ := w.informer.GetIndexer().GetByKey(name.String()) // this index has no errors
	secret, _ = found.(*core.Secret)
	return secret, true, w.refusal
}

// Stop follows no secret any more.
func (w *SecretWatch) Stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cancel()
}

func (w *SecretWatch) follow() error {
	name := w.name
	factory := informers.NewSharedInformerFactoryWithOptions(w.client, 0, informers.WithNamespace(name.Namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name.Name).String()
		}))
	w.informer = factory.Core().V1().Secrets().Informer()
	registered, err := w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { w.tell(name, nil) },
		UpdateFunc: func(_, _ any) { w.tell(name, nil) },
		DeleteFunc: func(any) { w.tell(name, nil) },
	})
	if err != nil {
		return err
	}
	err = w.informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		cache.DefaultWatchErrorHandler(ctx, r, err)
		if apierrors.IsForbidden(err) { // other watches end, and begin again
			w.tell(name, err)
		}
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	factory.StartWithContext(ctx)
	go func() {
		if cache.WaitFor(ctx, "", registered.HasSyncedChecker()) {
			w.tell(name, nil)
		}
	}()
	return nil
}

func (w *SecretWatch) tell(name types.NamespacedName, refusal error) {
	w.mu.Lock()
	if w.name == name {
		w.refusal = refusal
	}
	w.mu.Unlock()
	w.changed()
}
