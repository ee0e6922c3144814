package realapi

import (
	"context"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
)

// PutPast makes an object that the schema of today refuses for one field: while it does, the field may be anything, as
// with a release that did not look at it. It waits until the schema is the one of today again.
func PutPast(t testing.TB, config *rest.Config, resource string, o *unstructured.Unstructured, field string) *unstructured.Unstructured {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	apis := dynamic.NewForConfigOrDie(config)
	version := schema.GroupVersion{Group: "holdfast.dev", Version: "v1"}
	objects := dynamic.ResourceInterface(apis.Resource(version.WithResource(resource)))
	if o.GetNamespace() != "" {
		objects = apis.Resource(version.WithResource(resource)).Namespace(o.GetNamespace())
	}
	o.SetAPIVersion(version.String())
	kept := loosen(ctx, t, apis, resource+".holdfast.dev", field)
	var made *unstructured.Unstructured
	err := Until(ctx, func() (ok bool) { // the server takes a moment to see the change
		var err error
		made, err = objects.Create(ctx, o, metav1.CreateOptions{})
		if err != nil && !apierrors.IsInvalid(err) && !apierrors.IsConflict(err) {
			t.Logf("making %s: %v", o.GetName(), err)
		}
		return err == nil
	})
	define(ctx, t, apis, resource+".holdfast.dev", func(d *unstructured.Unstructured) { d.Object["spec"] = kept })
	if err != nil {
		t.Fatalf("%s %s could not be made: %v", o.GetKind(), o.GetName(), err)
	}
	another := o.DeepCopy()
	another.SetName(o.GetName() + "-again")
	if err := Until(ctx, func() bool {
		_, err := objects.Create(ctx, another, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return apierrors.IsInvalid(err)
	}); err != nil {
		t.Fatalf("the schema of %s does not refuse %s again: %v", resource, field, err)
	}
	return made
}

// loosen lets a field be anything, drops all rules, and returns the spec of the definition as it was.
func loosen(ctx context.Context, t testing.TB, apis dynamic.Interface, name, field string) (kept any) {
	t.Helper()
	define(ctx, t, apis, name, func(d *unstructured.Unstructured) {
		kept = d.DeepCopy().Object["spec"]
		versions, _, _ := unstructured.NestedSlice(d.Object, "spec", "versions")
		one := versions[0].(map[string]any)
		root, _, _ := unstructured.NestedMap(one, "schema", "openAPIV3Schema")
		withoutRules(root)
		at := root
		for _, part := range strings.Split(field, ".") {
			properties, is := at["properties"].(map[string]any)
			if !is {
				properties = at["items"].(map[string]any)["properties"].(map[string]any)
			}
			at = properties[part].(map[string]any)
		}
		clear(at)
		at["x-kubernetes-preserve-unknown-fields"] = true
		one["schema"] = map[string]any{"openAPIV3Schema": root}
		if err := unstructured.SetNestedSlice(d.Object, versions, "spec", "versions"); err != nil {
			t.Fatal(err)
		}
	})
	return kept
}

func withoutRules(schema any) {
	switch schema := schema.(type) {
	case map[string]any:
		delete(schema, "x-kubernetes-validations")
		for _, below := range schema {
			withoutRules(below)
		}
	case []any:
		for _, below := range schema {
			withoutRules(below)
		}
	}
}

func define(ctx context.Context, t testing.TB, apis dynamic.Interface, name string, change func(*unstructured.Unstructured)) {
	t.Helper()
	kinds := apis.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		d, err := kinds.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(d)
		_, err = kinds.Update(ctx, d, metav1.UpdateOptions{})
		return err
	}); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}
