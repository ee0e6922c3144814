// Schema writes the kinds of some CRDs as an OpenAPI document of version 2, for applyconfiguration-gen: it makes of it
// what tells a fake client and the Extract functions which manager has which field. Or it writes what the values of the
// Helm chart may be.
//
//	schema GO-PACKAGE CRD...
//	schema -values CRD
package main

import (
	"encoding/json"
	"fmt"
	"os"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/yaml"
)

const definitions = "#/definitions/"

func main() {
	if err := write(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write(what string, files []string) error {
	out := json.NewEncoder(os.Stdout)
	if what == "-values" {
		out.SetIndent("", "  ")
		out.SetEscapeHTML(false)
		document, err := values(files[0])
		if err != nil {
			return err
		}
		return out.Encode(document)
	}
	document, err := describe(what, files)
	if err != nil {
		return err
	}
	return out.Encode(document)
}

func describe(goPackage string, files []string) (*spec.Swagger, error) {
	document := &spec.Swagger{SwaggerProps: spec.SwaggerProps{
		Swagger: "2.0", Info: &spec.Info{InfoProps: spec.InfoProps{Title: goPackage, Version: "v1"}},
		Paths: &spec.Paths{}, Definitions: spec.Definitions{},
	}}
	// Those of apimachinery come with those of the CRDs themselves.
	reference := func(name string) spec.Ref { return spec.MustCreateRef(definitions + name) }
	for name, definition := range openapi.GetOpenAPIDefinitions(reference) {
		document.Definitions[name] = definition.Schema
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var crd apiextensions.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(text, &crd); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, version := range crd.Spec.Versions {
			schema, err := kind(version.Schema.OpenAPIV3Schema)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			document.Definitions[util.ToRESTFriendlyName(goPackage+"."+crd.Spec.Names.Kind)] = *schema
		}
	}
	return document, nil
}

// kind makes a schema of version 2 of that of a CRD.
func kind(v3 *apiextensions.JSONSchemaProps) (*spec.Schema, error) {
	plain(v3)
	text, err := json.Marshal(v3)
	if err != nil {
		return nil, err
	}
	var v2 spec.Schema
	if err := json.Unmarshal(text, &v2); err != nil {
		return nil, err
	}
	v2.Properties["metadata"] = *spec.RefSchema(definitions + metav1.ObjectMeta{}.OpenAPIModelName())
	return &v2, nil
}

// plain takes away what version 2 has no words for.
func plain(schema *apiextensions.JSONSchemaProps) {
	schema.XValidations = nil
	if schema.XIntOrString {
		*schema = apiextensions.JSONSchemaProps{Type: "string", Format: "int-or-string"}
	}
	for name, property := range schema.Properties {
		plain(&property)
		schema.Properties[name] = property
	}
	if schema.Items != nil {
		plain(schema.Items.Schema)
	}
	if schema.AdditionalProperties != nil {
		plain(schema.AdditionalProperties.Schema)
	}
}
