package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// ofKubernetes are fields whose own fields are those of a pod.
var ofKubernetes = []string{"affinity", "nodeSelectorTerms", "tolerations", "topologySpreadConstraints", "resources", "imagePullSecrets"}

// fields returns a table of the fields of the spec of the kind in a CRD, each with the value that it has in an example: in a
// list of specs by the name of the kind, or in the spec of a StorageCluster in values of the chart.
func fields(file, example string) (string, error) {
	crd, err := definition(file)
	if err != nil {
		return "", err
	}
	content, err := os.ReadFile(example)
	if err != nil {
		return "", err
	}
	has := map[string]any{}
	if err := yaml.Unmarshal(content, &has); err != nil {
		return "", fmt.Errorf("%s: %w", example, err)
	}
	examples, several := has[crd.Spec.Names.Kind].([]any)
	if !several {
		examples = []any{has["cluster"]}
	}
	var rows strings.Builder
	rows.WriteString("| field | | example |\n| --- | --- | --- |\n")
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	if err := inner(&rows, &spec, "", examples); err != nil {
		return "", fmt.Errorf("%s, %s: %w", example, crd.Spec.Names.Kind, err)
	}
	return rows.String(), nil
}

// inner writes the rows of the fields of an object. Of several examples of the object, the first that has a field counts.
func inner(rows *strings.Builder, schema *apiextensions.JSONSchemaProps, path string, examples []any) error {
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		field := schema.Properties[name]
		at := strings.TrimPrefix(path+"."+name, ".")
		var values []any
		for _, e := range examples {
			if value, given := e.(map[string]any)[name]; given {
				values = append(values, value)
			}
		}
		if len(values) == 0 {
			return fmt.Errorf("there is no example of %s", at)
		}
		object := &field
		if slices.Contains(ofKubernetes, name) {
			object = &apiextensions.JSONSchemaProps{}
		} else if field.Items != nil && field.Items.Schema.Properties != nil {
			var all []any
			for _, list := range values {
				all = append(all, list.([]any)...)
			}
			object, at, values = field.Items.Schema, at+"[]", all
		}
		if object.Properties != nil {
			fmt.Fprintf(rows, "| **`%s`** | %s | |\n", at, inCell(field.Description))
			if err := inner(rows, object, at, values); err != nil {
				return err
			}
			continue
		}
		text, err := json.Marshal(values[0])
		if err != nil {
			return err
		}
		fmt.Fprintf(rows, "| `%s` | %s | `%s` |\n", at, inCell(field.Description), inCell(string(text)))
	}
	return nil
}
