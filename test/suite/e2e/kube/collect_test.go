package kube

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

// secret is as the API server gives it after kubectl apply.
func secret() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{
			"name": "password", "namespace": "test",
			"annotations": map[string]any{
				"kubectl.kubernetes.io/last-applied-configuration": `{"stringData":{"word":"hunter2"}}`, "other": "stays",
			},
			"managedFields": []any{map[string]any{"manager": "kubectl"}},
		},
		"data":       map[string]any{"word": "aHVudGVyMg=="},
		"stringData": map[string]any{"word": "hunter2"},
	}}
}

func TestCollect_SecretIsShownWithoutItsValues(t *testing.T) {
	text, err := manifests([]unstructured.Unstructured{*secret()})
	if err != nil {
		t.Fatal(err)
	}
	for _, hidden := range []string{"hunter2", "aHVudGVyMg", "kubectl"} {
		if strings.Contains(string(text), hidden) {
			t.Errorf("%s is in %s", hidden, text)
		}
	}
	for _, shown := range []string{"---\n", "name: password", "other: stays", "word: (12 characters, not shown)"} {
		if !strings.Contains(string(text), shown) {
			t.Errorf("%s is not in %s", shown, text)
		}
	}
}

func TestCollect_FailureIsNamedAndBlocksNothingElse(t *testing.T) {
	c, client := imitation(t)
	if err := client.Tracker().Add(&corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: "test"}, Reason: "Seen"}); err != nil {
		t.Fatal(err)
	}
	client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("no pods today")
	})
	secrets := c.Dynamic.Resource(corev1.SchemeGroupVersion.WithResource("secrets"))
	if _, err := secrets.Namespace("test").Create(t.Context(), secret(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := c.Collect(t.Context(), dir, "test"); err == nil || !strings.Contains(err.Error(), "pods in test: no pods today") {
		t.Errorf("error %v", err)
	}
	for file, want := range map[string]string{"events.txt": "Seen", "objects/test/secrets.yaml": "name: password"} {
		if content, err := os.ReadFile(filepath.Join(dir, file)); err != nil || !strings.Contains(string(content), want) {
			t.Errorf("%s: %q, %v", file, content, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "objects/holdfast-system")); !os.IsNotExist(err) {
		t.Errorf("a folder without anything in it, %v", err)
	}
}

func TestCollect_OnlyTheEndOfALongLogIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	for limit, want := range map[int64]string{4: "6789", 10: "0123456789", 100: "0123456789"} {
		if got, err := tail(path, limit); err != nil || string(got) != want {
			t.Errorf("%d: %q, %v", limit, got, err)
		}
	}
}
