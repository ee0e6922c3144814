package apply

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/miniapi"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func TestMain(m *testing.M) { os.Exit(realapi.Main(m)) }

const namespace = realapi.Namespace

var (
	configMaps = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	classes    = schema.GroupVersionKind{Group: "storage.k8s.io", Version: "v1", Kind: "StorageClass"}
	learned    = schema.GroupVersionKind{Group: "holdfast.dev", Version: "v1beta1", Kind: "Volume"} // a kind that is defined later
	resources  = map[string][]metav1.APIResource{
		"v1":                {{Name: "configmaps", Kind: "ConfigMap", Namespaced: true}, {Name: "configmaps/status", Kind: "ConfigMap", Namespaced: true}},
		"storage.k8s.io/v1": {{Name: "storageclasses", Kind: "StorageClass"}},
	}
)

// rig is a Set over an API server in memory.
type rig struct {
	*testing.T
	api    *miniapi.Server
	client dynamic.Interface
	set    *Set

	mu       sync.Mutex
	serves   map[string][]metav1.APIResource
	notified []Ref

	strangers []Ref // that were reported
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{T: t, api: miniapi.New(t), serves: map[string][]metav1.APIResource{}}
	maps.Copy(r.serves, resources)
	r.client = dynamic.NewForConfigOrDie(r.api.Config())
	return r
}

// started runs a test in a bubble, with a Set that has started on nothing.
func started(t *testing.T, test func(t *testing.T, r *rig)) {
	synctest.Test(t, func(t *testing.T) { test(t, newRig(t).start()) })
}

// start starts a Set on the existing objects.
func (r *rig) start() *rig {
	r.Helper()
	set := check.Got(New(Config{
		Client: r.client, Resources: r.discover, Kinds: []schema.GroupVersionKind{configMaps, classes, learned}, Namespace: namespace, Name: "test",
		Stranger: func(_ context.Context, o *unstructured.Unstructured) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.strangers = append(r.strangers, RefOf(o))
			return nil
		},
		Log: slog.New(slog.NewTextHandler(r.Output(), nil)),
	}))(r)
	set.Listen(func(ref Ref) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.notified = append(r.notified, ref)
	})
	ctx, cancel := context.WithCancel(context.Background())
	r.Cleanup(cancel)
	check.OK(r, set.Start(ctx))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.set, r.notified = set, nil
	return r
}

func (r *rig) discover(version string) (*metav1.APIResourceList, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list, ok := r.serves[version]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, version)
	}
	return &metav1.APIResourceList{APIResources: list}, nil
}

func (r *rig) serve(version string, list ...metav1.APIResource) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.serves[version] = list
}

func (r *rig) wasNotified(ref Ref) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, notified := range r.notified {
		if notified == ref {
			r.notified = r.notified[i+1:]
			return true
		}
	}
	return false
}

// object returns an object with our labels and the given content.
func object(kind schema.GroupVersionKind, name string, fields map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	maps.Copy(o.Object, fields)
	o.SetGroupVersionKind(kind)
	o.SetName(name)
	if kind == configMaps {
		o.SetNamespace(namespace)
	}
	o.SetLabels(map[string]string{ManagedByLabel: FieldManager, v1beta1.PartOfLabel: v1beta1.AppName, InstanceLabel: "holdfast"})
	return o
}

func configMap(name, value string) *unstructured.Unstructured {
	return object(configMaps, name, map[string]any{"data": map[string]any{"key": value}})
}

func class(name, provisioner string) *unstructured.Unstructured {
	return object(classes, name, map[string]any{"provisioner": provisioner})
}

func list(all ...*unstructured.Unstructured) []*unstructured.Unstructured { return all }

func (r *rig) of(kind schema.GroupVersionKind) dynamic.ResourceInterface {
	if kind == configMaps {
		return r.client.Resource(kind.GroupVersion().WithResource("configmaps")).Namespace(namespace)
	}
	return r.client.Resource(kind.GroupVersion().WithResource("storageclasses"))
}

func (r *rig) live(o *unstructured.Unstructured) *unstructured.Unstructured {
	r.Helper()
	return wait.Get(r, func(ctx context.Context, name string, options metav1.GetOptions) (*unstructured.Unstructured, error) {
		return r.of(o.GroupVersionKind()).Get(ctx, name, options)
	}, o.GetName())
}

// apply fails the test if an object is refused.
func (r *rig) apply(all ...*unstructured.Unstructured) Outcome {
	r.Helper()
	out := r.set.Apply(r.Context(), all)
	check.OK(r, out.Err())
	return out
}

// seen waits until the cache has the state of the API server, and all was notified of it.
func (r *rig) seen(o *unstructured.Unstructured) {
	r.Helper()
	wait.Until(r, "the cache having "+o.GetName(), func() bool {
		live := r.live(o)
		cached := r.set.watch(RefOf(o).GroupKind).get(RefOf(o).NamespacedName)
		return live == nil && cached == nil || live != nil && cached != nil && live.GetResourceVersion() == cached.GetResourceVersion()
	})
	synctest.Wait()
}

func (r *rig) edit(o *unstructured.Unstructured, patch string) {
	r.Helper()
	check.Got(r.of(o.GroupVersionKind()).Patch(r.Context(), o.GetName(), types.MergePatchType, []byte(patch), metav1.PatchOptions{}))(r)
}

func (r *rig) writes() (count int) {
	for what, n := range r.api.Requests() {
		if !strings.HasPrefix(what, "watch ") && !strings.HasPrefix(what, "list ") {
			count += n
		}
	}
	return count
}
