package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// secretWatch follows the one secret that the StorageCluster names, wherever that is.
type secretWatch struct {
	client  kubernetes.Interface
	log     *slog.Logger
	changed func()

	mu      sync.Mutex
	name    types.NamespacedName
	index   cache.Indexer
	synced  func() bool
	refusal error // why it cannot be read
	cancel  context.CancelFunc
}

func newSecretWatch(client kubernetes.Interface, log *slog.Logger, changed func()) *secretWatch {
	return &secretWatch{client: client, log: log, changed: changed, cancel: func() {}}
}

// get returns what a secret holds, nil if it does not exist. known is false until the API server has answered, which
// calls changed.
func (w *secretWatch) get(name types.NamespacedName) (data map[string][]byte, known bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if name != w.name {
		w.follow(name)
	}
	if name.Name == "" {
		return nil, true, nil
	}
	if w.refusal != nil {
		return nil, true, w.refusal
	}
	if !w.synced() {
		return nil, false, nil
	}
	found, exists, _ := w.index.GetByKey(name.String()) // this index has no errors
	if !exists {
		return nil, true, fmt.Errorf("spec.secretRef: there is no secret %s: make it, or name another", name)
	}
	return found.(*core.Secret).Data, true, nil
}

func (w *secretWatch) follow(name types.NamespacedName) {
	w.cancel()
	w.name, w.refusal, w.cancel = name, nil, func() {}
	if name.Name == "" {
		return
	}
	lister := cache.NewListWatchFromClient(w.client.CoreV1().RESTClient(), "secrets", name.Namespace, fields.OneTermEqualSelector("metadata.name", name.Name))
	informer := cache.NewSharedIndexInformer(lister, &core.Secret{}, 0, nil)
	touch := func() {
		w.refused(name, nil)
		w.changed()
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { touch() }, UpdateFunc: func(any, any) { touch() }, DeleteFunc: func(any) { touch() },
	})
	if err == nil {
		err = informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
			if !apierrors.IsForbidden(err) {
				return // watches end, and begin again
			}
			w.refused(name, fmt.Errorf("spec.secretRef: the secret %s cannot be read: %w", name, err))
			w.changed()
		})
	}
	if err != nil {
		w.refusal = err
		return
	}
	w.index, w.synced = informer.GetIndexer(), informer.HasSynced
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	go informer.RunWithContext(ctx)
	go func() {
		if cache.WaitFor(ctx, "", informer.HasSyncedChecker()) {
			touch()
		}
	}()
}

func (w *secretWatch) refused(name types.NamespacedName, why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.name == name {
		w.refusal = why
	}
}

func (w *secretWatch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cancel()
}
