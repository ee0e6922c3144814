package kube

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-storage/holdfast/test/rig/check"
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
	text := check.Got(manifests([]unstructured.Unstructured{*secret()}))(t)
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
