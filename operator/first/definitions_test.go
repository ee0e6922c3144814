package first

import (
	"log/slog"
	"os"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/holdfast-storage/holdfast/test/realapi"
)

func TestMain(m *testing.M) { os.Exit(realapi.Main(m)) }

func TestTheKindsOfAnOlderReleaseAreBroughtToThisOne(t *testing.T) {
	client := dynamic.NewForConfigOrDie(realapi.Config(t))
	kinds := client.Resource(definitions)
	const name = "nodejobs.holdfast.dev"
	columns := func(d *unstructured.Unstructured) int {
		versions, _, _ := unstructured.NestedSlice(d.Object, "spec", "versions")
		shown, _, _ := unstructured.NestedSlice(versions[0].(map[string]any), "additionalPrinterColumns")
		return len(shown)
	}
	now, err := kinds.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	older := []byte(`[{"op": "remove", "path": "/spec/versions/0/additionalPrinterColumns/0"}]`)
	was, err := kinds.Patch(t.Context(), name, types.JSONPatchType, older, metav1.PatchOptions{})
	if err != nil || columns(was) != columns(now)-1 {
		t.Fatalf("%d columns of %d, %v", columns(was), columns(now), err)
	}
	for range 2 {
		if err := Define(t.Context(), client, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
	}
	is, err := kinds.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil || columns(is) != columns(now) {
		t.Errorf("%d columns, %v, want %d", columns(is), err, columns(now))
	}
	if is.GetGeneration() != was.GetGeneration()+1 {
		t.Errorf("generation %d after %d: the second time changed something", is.GetGeneration(), was.GetGeneration())
	}
}
