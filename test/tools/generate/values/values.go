package main

import (
	"fmt"
	"os"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// values describes the values of the Helm chart, which are the spec of the kind in a CRD, as JSON Schema. A field that is
// misspelt would not be noticed, so none is allowed that is not known.
func values(file string) (map[string]any, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var crd apiextensions.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(text, &crd); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	spec := jsonSchema(crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"])
	spec["description"] = "The spec of the " + crd.Spec.Names.Kind + "."
	return map[string]any{
		"$schema": "http://json-schema.org/draft-07/schema#",
		"type":    "object", "additionalProperties": false,
		"properties": map[string]any{
			"cluster": spec,
			"global":  map[string]any{"description": "Helm adds this where the chart is part of another."},
		},
	}, nil
}

// jsonSchema leaves out the rules in CEL, which the API server and the operator check.
func jsonSchema(s apiextensions.JSONSchemaProps) map[string]any {
	out := map[string]any{}
	set(out, "description", s.Description)
	set(out, "type", s.Type)
	set(out, "pattern", s.Pattern)
	for key, bound := range map[string]*int64{
		"minLength": s.MinLength, "maxLength": s.MaxLength, "minItems": s.MinItems, "maxItems": s.MaxItems,
		"minProperties": s.MinProperties, "maxProperties": s.MaxProperties,
	} {
		if bound != nil {
			out[key] = *bound
		}
	}
	for key, bound := range map[string]*float64{"minimum": s.Minimum, "maximum": s.Maximum} {
		if bound != nil {
			out[key] = *bound
		}
	}
	if len(s.Enum) > 0 {
		out["enum"] = s.Enum
	}
	if len(s.Required) > 0 {
		out["required"] = s.Required
	}
	if s.XIntOrString {
		out["anyOf"] = []any{map[string]any{"type": "number"}, map[string]any{"type": "string"}}
	}
	if s.Items != nil {
		out["items"] = jsonSchema(*s.Items.Schema)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		out["additionalProperties"] = jsonSchema(*s.AdditionalProperties.Schema)
	} else if s.Properties != nil {
		out["additionalProperties"] = false
		properties := map[string]any{}
		for name, property := range s.Properties {
			properties[name] = jsonSchema(property)
		}
		out["properties"] = properties
	}
	return out
}

func set(out map[string]any, key, value string) {
	if value != "" {
		out[key] = value
	}
}
