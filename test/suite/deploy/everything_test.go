package deploy

import (
	"os"
	"testing"

	"sigs.k8s.io/yaml"
)

// everything is values with which every part of the chart is rendered.
func everything(t *testing.T) map[string]any {
	t.Helper()
	content, err := os.ReadFile("testdata/everything.yaml")
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{}
	if err := yaml.UnmarshalStrict(content, &values); err != nil {
		t.Fatal(err)
	}
	return values
}

// with returns values in which the one at the path is another. A step into a list is into its first element.
func with(values map[string]any, value any, path ...string) map[string]any {
	out := copyOf(values)
	at := out
	for _, step := range path[:len(path)-1] {
		switch next := at[step].(type) {
		case map[string]any:
			at = next
		case []any:
			at = next[0].(map[string]any)
		default:
			made := map[string]any{}
			at[step] = made
			at = made
		}
	}
	at[path[len(path)-1]] = value
	return out
}
