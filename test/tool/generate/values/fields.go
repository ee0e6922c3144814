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

// fields returns a table of the fields of the spec of the kind in a CRD, with the values that they have in an example.
func fields(file, example string) (string, error) {
	crd, err := definition(file)
	if err != nil {
		return "", err
	}
	content, err := os.ReadFile(example)
	if err != nil {
		return "", err
	}
	var has struct {
		Cluster map[string]any `json:"cluster"`
	}
	if err := yaml.Unmarshal(content, &has); err != nil {
		return "", fmt.Errorf("%s: %w", example, err)
	}
	var rows strings.Builder
	rows.WriteString("| field | | example |\n| --- | --- | --- |\n")
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	return rows.String() + inner(&spec, "", []any{has.Cluster}), nil
}

// inner returns the rows of the fields of an object. Of several examples of the object, the first that has a field counts.
func inner(schema *apiextensions.JSONSchemaProps, path string, examples []any) string {
	var rows strings.Builder
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		field := schema.Properties[name]
		at := strings.TrimPrefix(path+"."+name, ".")
		var values []any
		for _, e := range examples {
			if value, given := e.(map[string]any)[name]; given {
				values = append(values, value)
			}
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
			fmt.Fprintf(&rows, "| **`%s`** | %s | |\n", at, inCell(field.Description))
			rows.WriteString(inner(object, at, values))
			continue
		}
		text := ""
		if len(values) > 0 {
			if value, err := json.Marshal(values[0]); err == nil {
				text = "`" + inCell(string(value)) + "`"
			}
		}
		fmt.Fprintf(&rows, "| `%s` | %s | %s |\n", at, inCell(field.Description), text)
	}
	return rows.String()
}
