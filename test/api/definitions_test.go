package api_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

const definitionFiles = "../../deploy/crds/holdfast.dev_*.yaml"

var definitionResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// definitions are the kinds of Holdfast in a cluster. Those that are there already must be of this tree; they stay.
type definitions struct {
	client dynamic.ResourceInterface
	made   []string
}

func (d *definitions) install(ctx context.Context) error {
	files, err := filepath.Glob(definitionFiles)
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no definitions at %s: %w", definitionFiles, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var definition unstructured.Unstructured
		if err := yaml.Unmarshal(text, &definition.Object); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if err := d.need(ctx, &definition); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

func (d *definitions) need(ctx context.Context, definition *unstructured.Unstructured) error {
	name := definition.GetName()
	there, err := d.client.Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		return d.compare(ctx, there, definition)
	}
	if !apierrors.IsNotFound(err) {
		return err
	}
	if _, err := d.client.Create(ctx, definition, metav1.CreateOptions{}); err != nil {
		return err
	}
	d.made = append(d.made, name)
	return d.await(ctx, name, func(e watch.Event) bool { return established(e.Object) })
}

// compare refuses a definition of another tree: changing it would change a cluster that is in use, and nothing tells
// when the server has begun to serve the change.
func (d *definitions) compare(ctx context.Context, there, wanted *unstructured.Unstructured) error {
	applied, err := d.client.Apply(ctx, wanted.GetName(), wanted, metav1.ApplyOptions{FieldManager: "test", Force: true, DryRun: dryRun})
	if err != nil {
		return err
	}
	if applied.GetGeneration() != there.GetGeneration() {
		return errors.New("the cluster has another version of it; first apply that of deploy/crds")
	}
	return nil
}

func (d *definitions) remove(ctx context.Context) error {
	var failed []error
	for _, name := range d.made {
		err := d.client.Delete(ctx, name, metav1.DeleteOptions{})
		if err == nil {
			err = d.await(ctx, name, func(e watch.Event) bool { return e.Type == watch.Deleted })
		}
		if err != nil && !apierrors.IsNotFound(err) {
			failed = append(failed, fmt.Errorf("removing %s: %w", name, err))
		}
	}
	return errors.Join(failed...)
}

// await watches a definition until done says so. A definition that does not exist has been deleted.
func (d *definitions) await(ctx context.Context, name string, done func(watch.Event) bool) error {
	only := "metadata.name=" + name
	list, err := d.client.List(ctx, metav1.ListOptions{FieldSelector: only})
	if err != nil {
		return err
	}
	state := watch.Event{Type: watch.Deleted}
	for i := range list.Items {
		state = watch.Event{Type: watch.Added, Object: &list.Items[i]}
	}
	if done(state) {
		return nil
	}
	changes, err := d.client.Watch(ctx, metav1.ListOptions{FieldSelector: only, ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		return err
	}
	defer changes.Stop()
	for change := range changes.ResultChan() {
		if done(change) {
			return nil
		}
		state = change
	}
	return fmt.Errorf("the wait for %s ended: %w; it is %v", name, ctx.Err(), state.Object)
}

func established(object any) bool {
	definition, ok := object.(*unstructured.Unstructured)
	if !ok {
		return false
	}
	conditions, _, _ := unstructured.NestedSlice(definition.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "Established" && c["status"] == "True" {
			return true
		}
	}
	return false
}
