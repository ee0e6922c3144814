package deploy

import (
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// places are the fields of the spec that have a place of their own in the values.
var places = map[string][]string{
	"controller": {"controller"}, "node": {"node"}, "defaultClass": {"defaultClass"}, "monitoring": {"monitoring", "podMonitor"},
	"imageRegistry": {"global", "imageRegistry"}, "imagePullSecrets": {"imagePullSecrets"}, "imagePullPolicy": {"image", "pullPolicy"},
}

// asValues returns the values for a spec.
func asValues(spec map[string]any) map[string]any {
	cluster := copyOf(spec)
	values := map[string]any{"cluster": cluster}
	for field, place := range places {
		if value, given := cluster[field]; given {
			values = with(values, value, place...)
			delete(values["cluster"].(map[string]any), field)
			cluster = values["cluster"].(map[string]any)
		}
	}
	if own, given := lookup(values, "cluster", "images", "holdfast"); given {
		repository, tag, _ := strings.Cut(own.(string), ":")
		values = with(with(values, repository, "image", "repository"), tag, "image", "tag")
		images := values["cluster"].(map[string]any)["images"].(map[string]any)
		if delete(images, "holdfast"); len(images) == 0 {
			delete(values["cluster"].(map[string]any), "images")
		}
	}
	return values
}

// everything is a spec with which every part of the chart is rendered.
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
	return values["cluster"].(map[string]any)
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
