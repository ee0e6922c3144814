package main

import (
	"fmt"
	"maps"
	"os"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// values describes the values of the Helm chart as JSON Schema: the spec of the kind in a CRD, of which some fields have a
// place of their own and are refused in cluster. A field that is misspelt would not be noticed, so none is allowed that is
// not known.
func values(file string) (map[string]any, error) {
	crd, err := definition(file)
	if err != nil {
		return nil, err
	}
	spec := jsonSchema(crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"])
	spec["description"] = "The other fields of the spec of the StorageCluster."
	fields := spec["properties"].(map[string]any)
	move := func(name, to string) map[string]any {
		field := fields[name]
		fields[name] = instead(to)
		return field.(map[string]any)
	}
	registry, secrets := move("imageRegistry", "global.imageRegistry"), move("imagePullSecrets", "imagePullSecrets")
	fields["images"].(map[string]any)["properties"].(map[string]any)["holdfast"] = instead("image.repository, image.tag and image.digest")
	node := move("node", "node")
	node["properties"].(map[string]any)["tolerations"] = never("pods of nodes tolerate every taint: leave it out")
	node["properties"].(map[string]any)["nodeSelector"] = instead("cluster.nodeSelectorTerms")
	podMonitor := move("monitoring", "monitoring.podMonitor")
	podMonitor["description"] = "The PodMonitor, which the operator makes where the cluster has that kind."
	enabled := func(what string) map[string]any {
		labels := maps.Clone(podMonitor["properties"].(map[string]any)["labels"].(map[string]any))
		labels["description"] = "labels by which it is found."
		return object(what, map[string]any{"enabled": boolean(what), "labels": labels})
	}
	properties := map[string]any{
		"cluster":    spec,
		"controller": move("controller", "controller"),
		"node":       node,
		"global": map[string]any{
			"type": "object", "description": "Helm passes this on from a chart that has this one in it, which may have more here.",
			"properties": map[string]any{"imageRegistry": registry, "imagePullSecrets": secrets},
		},
		"image": object("The image of Holdfast.", map[string]any{
			"repository": text("The image without a tag, such as registry.example/holdfast. Empty means holdfast/holdfast in global.imageRegistry."),
			"tag":        text("Empty means the version of the chart."),
			"digest":     text("Such as sha256:0123..., which decides where there is a tag, too."),
			"pullPolicy": move("imagePullPolicy", "image.pullPolicy"),
		}),
		"imagePullSecrets": secrets,
		"defaultClass":     move("defaultClass", "defaultClass"),
		"singleNode":       boolean("One pod of each controller, unless controller.replicas has another number or controller.kind is StatefulSet."),
		"monitoring": object("What Prometheus and Grafana find.", map[string]any{
			"podMonitor":     podMonitor,
			"prometheusRule": enabled("The alerts, for a cluster that has PrometheusRules."),
			"dashboard":      enabled("The dashboard, as a ConfigMap that Grafana's sidecar finds."),
		}),
		"serviceAccount": object("The account of the controller.", map[string]any{
			"annotations": map[string]any{"type": "object", "description": "Annotations of it.", "additionalProperties": map[string]any{"type": "string"}},
			"name": map[string]any{
				"enum": []string{"", "holdfast-controller"}, "description": "Admission policies name the account, so it has no other name.",
			},
		}),
		"crds": object("The kinds of Holdfast.", map[string]any{
			"enabled": boolean("They are part of the release, and an upgrade changes them."),
			"keep":    boolean("They stay when the release is removed, and with them the objects that stand for volumes."),
		}),
	}
	for name, to := range elsewhere {
		properties[name] = instead(to)
	}
	schema := object("", properties)
	schema["$schema"] = "http://json-schema.org/draft-07/schema#"
	return schema, nil
}

func definition(file string) (crd apiextensions.CustomResourceDefinition, err error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return crd, err
	}
	if err := yaml.UnmarshalStrict(content, &crd); err != nil {
		return crd, fmt.Errorf("%s: %w", file, err)
	}
	return crd, nil
}

// elsewhere are values that many charts have at the top, and where they are in this one.
var elsewhere = map[string]string{
	"affinity": "controller.affinity", "extraArgs": "controller.extraArgs", "topologySpreadConstraints": "controller.topologySpreadConstraints",
	"replicas": "controller.replicas", "replicaCount": "controller.replicas", "imagePullPolicy": "image.pullPolicy",
	"nodeSelector":      "controller.nodeSelector, or cluster.nodeSelectorTerms for the nodes that store",
	"tolerations":       "controller.tolerations, or cluster.tolerations for all pods",
	"priorityClassName": "controller.priorityClassName, node.priorityClassName, or cluster.priorityClassName for all pods",
	"podAnnotations":    "controller.podAnnotations or node.podAnnotations",
	"podLabels":         "controller.podLabels or node.podLabels",
	"resources":         "controller.resources, node.resources, or cluster.resources for all pods",
	"storageClasses":    "cluster.storageClasses",
	"pools":             "cluster.pools",
}

// instead refuses a value, with where it belongs.
func instead(of string) map[string]any { return never("set " + of + " instead") }

// never refuses a value: the message of a validator says what it must be.
func never(why string) map[string]any { return map[string]any{"const": why} }

func boolean(description string) map[string]any {
	return map[string]any{"type": "boolean", "description": description}
}

func text(description string) map[string]any {
	return map[string]any{"type": "string", "description": description}
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
