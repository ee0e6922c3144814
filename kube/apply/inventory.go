package apply

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
)

// InventoryName is the name of the ConfigMap that lists created objects.
const InventoryName = "holdfast-inventory"

// inventory lists the objects that a Set has created, by kind, name and UID. Only these are ever deleted: labels,
// owners and managed fields do not suffice, since copies of an object have them too.
type inventory struct {
	configs dynamic.ResourceInterface
	key     string // of the ConfigMap's data

	log *slog.Logger

	mu      sync.Mutex
	created map[Ref]types.UID // "" while it is being created, so that it is listed even after a crash
	stored  string
	warned  bool
}

func newInventory(c *Config) *inventory {
	resource := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	return &inventory{configs: c.Client.Resource(resource).Namespace(c.InventoryNamespace), key: c.Name, log: c.Log}
}

// load reads the inventory. If there is none, an earlier release that kept none may have created objects, which before
// returns.
func (i *inventory) load(ctx context.Context, before func() []*unstructured.Unstructured) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.created != nil {
		return nil
	}
	config, err := i.configs.Get(ctx, InventoryName, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading ConfigMap %s: %w", InventoryName, err)
	}
	text, found := "", false
	if err == nil {
		text, found, _ = unstructured.NestedString(config.Object, "data", i.key)
	}
	if found {
		i.created, i.stored = parseInventory(text), text
		return nil
	}
	i.created = map[Ref]types.UID{}
	for _, o := range before() {
		i.created[RefOf(o)] = o.GetUID()
	}
	return nil
}

func (i *inventory) isNew(r Ref) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	_, known := i.created[r]
	return !known
}

func (i *inventory) has(o *unstructured.Unstructured) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	uid, known := i.created[RefOf(o)]
	return known && (uid == o.GetUID() || uid == "" && slices.ContainsFunc(o.GetManagedFields(), isOurs))
}

// change adds objects that were created, or are about to be, and removes those for which gone returns true.
func (i *inventory) change(ctx context.Context, made map[Ref]types.UID, gone func(Ref, types.UID) bool) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	maps.Copy(i.created, made)
	for ref, uid := range i.created {
		if _, now := made[ref]; !now && gone != nil && gone(ref, uid) {
			delete(i.created, ref)
		}
	}
	text := i.text()
	if text == i.stored {
		return nil
	}
	err := i.write(ctx, text)
	if apierrors.IsForbidden(err) { // the image was upgraded without the RBAC rules of its release
		if !i.warned {
			i.log.Warn("created objects are not recorded, so that a later release may not delete them: apply the manifest of this release", "error", err)
		}
		i.warned = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("recording created objects in ConfigMap %s: %w", InventoryName, err)
	}
	i.stored = text
	return nil
}

func (i *inventory) write(ctx context.Context, text string) error {
	data := map[string]any{i.key: text}
	_, err := kube.MergePatch(ctx, i.configs.Patch, InventoryName, map[string]any{"data": data}, FieldManager)
	if !apierrors.IsNotFound(err) {
		return err
	}
	_, err = i.configs.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "data": data,
		"metadata": map[string]any{"name": InventoryName, "labels": map[string]any{v1beta1.NameLabel: v1beta1.AppName}},
	}}, metav1.CreateOptions{FieldManager: FieldManager})
	return err
}

// text formats one line per object: kind, name, UID.
func (i *inventory) text() string {
	lines := make([]string, 0, len(i.created))
	for ref, uid := range i.created {
		if uid == "" {
			uid = "-"
		}
		lines = append(lines, fmt.Sprintf("%s %s %s\n", ref.GroupKind, strings.TrimPrefix(ref.NamespacedName.String(), "/"), uid))
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// parseInventory skips invalid lines: an object that is not listed is not deleted.
func parseInventory(text string) map[Ref]types.UID {
	made := map[Ref]types.UID{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) != 3 {
			continue
		}
		r := Ref{GroupKind: schema.ParseGroupKind(words[0])}
		namespace, name, namespaced := strings.Cut(words[1], "/")
		if !namespaced {
			namespace, name = "", words[1]
		}
		r.NamespacedName = types.NamespacedName{Namespace: namespace, Name: name}
		made[r] = types.UID(strings.TrimPrefix(words[2], "-"))
	}
	return made
}
