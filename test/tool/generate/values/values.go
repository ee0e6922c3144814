package main

import (
	"fmt"
	"os"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// values describes the values of the Helm chart as JSON Schema: the spec of the kind in a CRD, and fields of it under the
// names that they have in many charts. A field that is
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
	properties := map[string]any{
		"cluster": spec,
		"global": map[string]any{
			"type": "object", "description": "Helm passes this on from a chart that has this one in it, which may have more here.",
			"properties": map[string]any{"imageRegistry": field("imageRegistry"), "imagePullSecrets": field("imagePullSecrets")},
		},
		"imagePullPolicy":   field("imagePullPolicy"),
		"imagePullSecrets":  field("imagePullSecrets"),
		"priorityClassName": field("controller", "priorityClassName"),
		"serviceAccount": object("The account of the controller.", map[string]any{
			"annotations": map[string]any{"type": "object", "additionalProperties": map[string]any{"type": "string"}},
			"name": map[string]any{
				"enum": []string{"", "holdfast-controller"}, "description": "Admission policies name the account, so it has no other name.",
			},
		}),
		"crds": object("The kinds of Holdfast.", map[string]any{"enabled": boolean, "keep": boolean}),
	}
	for _, name := range ofController {
		properties[name] = field("controller", name)
	}
	schema := object("", properties)
	schema["$schema"] = "http://json-schema.org/draft-07/schema#"
	return schema, nil
}

// ofController are the values that are fields of spec.controller, under the same name.
var ofController = []string{"affinity", "nodeSelector", "tolerations", "topologySpreadConstraints", "podAnnotations", "podLabels", "resources", "extraArgs"}

var boolean = map[string]any{"type": "boolean"}

// field is what a field of the spec may be.
func field(path ...string) map[string]any {
	return map[string]any{"$ref": "#/properties/cluster/properties/" + strings.Join(path, "/properties/")}
}

// object has no other than these properties.
func object(description string, properties map[string]any) map[string]any {
	out := map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
	set(out, "description", description)
	return out
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
