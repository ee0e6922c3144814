package kube

import (
	"cmp"
	"context"
	"sync"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// SecretName returns the secret that a StorageCluster refers to, in the namespace of Holdfast; empty if it refers to
// none.
func SecretName(c *v1beta1.StorageCluster, namespace string) types.NamespacedName {
	if c == nil || c.Spec.SecretRef == nil {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: cmp.Or(c.Spec.SecretRef.Namespace, namespace), Name: c.Spec.SecretRef.Name}
}

// SecretWatch watches one secret at a time, so that the right to read that one suffices.
type SecretWatch struct {
	client  kubernetes.Interface
	changed func()

	mu       sync.Mutex
	name     types.NamespacedName
	informer cache.SharedIndexInformer
	refusal  *Refusal
	cancel   context.CancelFunc
}

// NewSecretWatch returns a watch that calls changed after the first read of a secret, whether it exists or not, after
// each change, and when reading it is forbidden. That it is allowed again shows only in Get.
func NewSecretWatch(client kubernetes.Interface, changed func()) *SecretWatch {
	return &SecretWatch{client: client, changed: changed, cancel: func() {}}
}

// Get returns a secret and watches it from now on. The secret is nil if it does not exist or the name is empty; known
// is false until the first read; refusal is why reading it is forbidden.
func (w *SecretWatch) Get(name types.NamespacedName) (secret *core.Secret, known bool, refusal error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if name != w.name {
		w.cancel()
		w.name, w.cancel = types.NamespacedName{}, func() {}
	}
	if name.Name == "" {
		return nil, true, nil
	}
	if name != w.name {
		if err := w.follow(name); err != nil {
			return nil, false, err
		}
	}
	if !w.informer.HasSynced() {
		return nil, false, w.refusal.Err()
	}
	return InStore[*core.Secret](w.informer.GetStore(), name.String()), true, w.refusal.Err()
}

// Stop ends the watch.
func (w *SecretWatch) Stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cancel()
}

// follow is called with mu held.
func (w *SecretWatch) follow(name types.NamespacedName) error {
	factory := informers.NewSharedInformerFactoryWithOptions(w.client, 0, informers.WithNamespace(name.Namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name.Name).String()
		}))
	informer := factory.Core().V1().Secrets().Informer()
	registered, err := informer.AddEventHandler(OnChange(func(any) { w.changed() }))
	if err != nil {
		return err
	}
	refusal, err := FollowRefusal(informer, func(error) { w.changed() })
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.name, w.informer, w.refusal, w.cancel = name, informer, refusal, cancel
	factory.StartWithContext(ctx)
	go func() {
		if cache.WaitFor(ctx, "", registered.HasSyncedChecker()) {
			w.changed()
		}
	}()
	return nil
}
