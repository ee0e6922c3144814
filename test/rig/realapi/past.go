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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// PutPast makes an object that the schema of today refuses for one field: while it does, the field may be anything, as
// with a release that did not look at it. It waits until the schema is the one of today again.
func PutPast(t testing.TB, config *rest.Config, resource string, o *unstructured.Unstructured, field string) (made *unstructured.Unstructured) {
	t.Helper()
	o.SetAPIVersion(version.String())
	past(t, config, resource, o.GetNamespace(), field, func(ctx context.Context, objects dynamic.ResourceInterface) (err error) {
		made, err = objects.Create(ctx, o, metav1.CreateOptions{})
		return err
	}, func(ctx context.Context, objects dynamic.ResourceInterface) error {
		another := o.DeepCopy()
		another.SetName(o.GetName() + "-again")
		_, err := objects.Create(ctx, another, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
	return made
}

// ChangePast changes an object that is in no namespace likewise, by a merge patch.
func ChangePast(t testing.TB, config *rest.Config, resource, name, patch, field string) {
	t.Helper()
	past(t, config, resource, "", field, func(ctx context.Context, objects dynamic.ResourceInterface) error {
		_, err := objects.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}, func(ctx context.Context, objects dynamic.ResourceInterface) error {
		o, err := objects.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		o.SetName(name + "-again")
		o.SetResourceVersion("")
		_, err = objects.Create(ctx, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
}

var version = schema.GroupVersion{Group: "holdfast.dev", Version: "v1beta1"}

// past writes with a looser schema, and waits until the one of today refuses that.
func past(t testing.TB, config *rest.Config, resource, namespace, field string, write, again func(context.Context, dynamic.ResourceInterface) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	apis := dynamic.NewForConfigOrDie(config)
	objects := dynamic.ResourceInterface(apis.Resource(version.WithResource(resource)))
	if namespace != "" {
		objects = apis.Resource(version.WithResource(resource)).Namespace(namespace)
	}
	kept := loosen(ctx, t, apis, resource+".holdfast.dev", field)
	var err error
	late := Until(ctx, func() bool { // the server takes a moment to see the change
		err = write(ctx, objects)
		return err == nil
	})
	define(ctx, t, apis, resource+".holdfast.dev", func(d *unstructured.Unstructured) { d.Object["spec"] = kept })
	if late != nil {
		t.Fatalf("of %s, %s could not be written past the schema: %v", resource, field, err)
	}
	if late := Until(ctx, func() bool {
		err = again(ctx, objects)
		return apierrors.IsInvalid(err)
	}); late != nil {
		t.Fatalf("the schema of %s does not refuse %s again: %v", resource, field, err)
	}
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
		for part := range strings.SplitSeq(field, ".") {
			properties, is := at["properties"].(map[string]any)
			if !is {
				properties = at["items"].(map[string]any)["properties"].(map[string]any)
			}
			at = properties[part].(map[string]any)
		}
		clear(at)
		at["x-kubernetes-preserve-unknown-fields"] = true
		one["schema"] = map[string]any{"openAPIV3Schema": root}
		check.OK(t, unstructured.SetNestedSlice(d.Object, versions, "spec", "versions"))
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
