package bootstrap

import (
	"context"
	"log/slog"
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/holdfast-storage/holdfast/deploy"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
)

func TestMain(m *testing.M) { os.Exit(realapi.Main(m)) }

func TestDefinitions_OfAnOlderReleaseAreUpgraded(t *testing.T) {
	client := dynamic.NewForConfigOrDie(realapi.Config(t))
	kinds := client.Resource(kube.Definitions)
	const name = "nodejobs.holdfast.dev"
	columns := func(d *unstructured.Unstructured) int {
		versions, _, _ := unstructured.NestedSlice(d.Object, "spec", "versions")
		shown, _, _ := unstructured.NestedSlice(versions[0].(map[string]any), "additionalPrinterColumns")
		return len(shown)
	}
	now, err := kinds.Get(t.Context(), name, metav1.GetOptions{})
	check.OK(t, err)
	older := []byte(`[{"op": "remove", "path": "/spec/versions/0/additionalPrinterColumns/0"}]`)
	was, err := kinds.Patch(t.Context(), name, types.JSONPatchType, older, metav1.PatchOptions{})
	if err != nil || columns(was) != columns(now)-1 {
		t.Fatalf("%d columns of %d, %v", columns(was), columns(now), err)
	}
	for range 2 {
		check.OK(t, Define(t.Context(), client, slog.New(slog.DiscardHandler)))
	}
	is, err := kinds.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil || columns(is) != columns(now) {
		t.Errorf("%d columns, %v, want %d", columns(is), err, columns(now))
	}
	if is.GetGeneration() != was.GetGeneration()+1 {
		t.Errorf("generation %d after %d: the second time changed something", is.GetGeneration(), was.GetGeneration())
	}
}

// Helm changes a kind that the operator has updated since, without --force-conflicts.
func TestDefinitions_OfAHelmReleaseStayHelms(t *testing.T) {
	client := dynamic.NewForConfigOrDie(realapi.Config(t))
	kinds := client.Resource(kube.Definitions)
	const name = "nodejobs.holdfast.dev"
	all := deploy.Definitions()
	t.Cleanup(func() {
		if _, err := kinds.Apply(context.Background(), name, definition(t, all, name), metav1.ApplyOptions{FieldManager: "helm", Force: true}); err != nil {
			t.Error(err)
		}
	})
	helm := func(column string, force bool) {
		t.Helper()
		d := definition(t, all, name)
		d.SetLabels(map[string]string{"app.kubernetes.io/managed-by": "Helm"})
		d.SetAnnotations(map[string]string{"meta.helm.sh/release-name": "holdfast", "helm.sh/resource-policy": "keep"})
		version := d.Object["spec"].(fields)["versions"].([]any)[0].(fields)
		version["additionalPrinterColumns"].([]any)[0].(fields)["name"] = column
		check.Got(kinds.Apply(t.Context(), name, d, metav1.ApplyOptions{FieldManager: "helm", Force: force}))(t)
	}
	if err := Define(t.Context(), client, slog.New(slog.DiscardHandler)); err != nil { // by kubectl, before
		t.Fatal(err)
	}
	helm("One", true)
	for _, column := range []string{"Two", "Three"} {
		check.OK(t, Define(t.Context(), client, slog.New(slog.DiscardHandler)))
		is, err := kinds.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || is.GetAnnotations()["helm.sh/resource-policy"] != "keep" || !equality.Semantic.DeepEqual(columnsOf(is), columnsOf(definition(t, all, name))) {
			t.Errorf("it is %v with the annotations %v, %v", columnsOf(is), is.GetAnnotations(), err)
		}
		helm(column, false)
	}
}

func definition(t *testing.T, all []*unstructured.Unstructured, name string) *unstructured.Unstructured {
	t.Helper()
	for _, d := range all {
		if d.GetName() == name {
			return d.DeepCopy()
		}
	}
	t.Fatalf("there is no kind %s", name)
	return nil
}

func columnsOf(d *unstructured.Unstructured) any {
	versions, _, _ := unstructured.NestedSlice(d.Object, "spec", "versions")
	return versions[0].(fields)["additionalPrinterColumns"]
}
