// Package schema_test holds together what the API server takes of the kinds and what the code can read and carry out. It
// has the API server's own validation as a library.
package schema_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apivalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// definition is what the API server makes of the schema of a kind.
type definition struct {
	kind       string
	structural *structuralschema.Structural
	schema     validation.SchemaCreateValidator
	rules      *cel.Validator
}

// definitions are those of deploy/crds, by kind.
func definitions(t testing.TB) map[string]*definition {
	t.Helper()
	files, err := filepath.Glob("../../../deploy/crds/holdfast.dev_*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	all := map[string]*definition{}
	for _, file := range files {
		d := read(t, check.Got(os.ReadFile(file))(t))
		all[d.kind] = d
	}
	return all
}

func read(t testing.TB, text []byte) *definition {
	t.Helper()
	var external apiextensionsv1.CustomResourceDefinition
	var internal apiextensions.CustomResourceDefinition
	scheme := runtime.NewScheme()
	check.OK(t, yaml.UnmarshalStrict(text, &external))
	check.OK(t, apiextensionsv1.AddToScheme(scheme))
	check.OK(t, apiextensions.AddToScheme(scheme))
	scheme.Default(&external)
	check.OK(t, scheme.Convert(&external, &internal, nil))
	// What rules may cost is a matter of this as well.
	if errs := apivalidation.ValidateCustomResourceDefinition(context.Background(), &internal); len(errs) > 0 {
		t.Fatalf("%s: the API server refuses the definition: %v", external.Name, errs.ToAggregate())
	}
	props := internal.Spec.Validation
	if props == nil {
		props = internal.Spec.Versions[0].Schema
	}
	structural := check.Got(structuralschema.NewStructural(props.OpenAPIV3Schema))(t)
	schema, _, err := validation.NewSchemaValidator(props.OpenAPIV3Schema)
	check.OK(t, err)
	return &definition{
		kind: external.Spec.Names.Kind, structural: structural, schema: schema,
		rules: cel.NewValidator(structural, true, celconfig.PerCallLimit),
	}
}

// refuses says what the API server would not take of an object that is made, nil if it takes it; and what it keeps.
func (d *definition) refuses(text string) (kept string, err error) {
	var o map[string]any
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return "", err
	}
	if errs := d.validate(o, nil); len(errs) > 0 {
		return "", errs.ToAggregate()
	}
	data, err := json.Marshal(o)
	return string(data), err
}

// validate returns what the API server would not take of an object that is made, or of one after a change.
func (d *definition) validate(o map[string]any, before any) field.ErrorList {
	errs := validation.ValidateCustomResource(nil, o, d.schema)
	if !slices.ContainsFunc(errs, blocks) { // as the API server does
		wrong, _ := d.rules.Validate(context.Background(), nil, d.structural, o, before, celconfig.RuntimeCELCostBudget)
		errs = append(errs, wrong...)
	}
	return errs
}

// blocks says whether the API server does not look at the rules as well.
func blocks(e *field.Error) bool {
	return slices.Contains([]field.ErrorType{field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid}, e.Type)
}

// object is one of a kind with a spec in JSON.
func object(kind, spec string) string {
	namespace := ""
	if kind == "NFSServer" {
		namespace = `"namespace":"default",`
	}
	return fmt.Sprintf(`{"apiVersion":"holdfast.dev/v1beta1","kind":%q,"metadata":{%s"name":"a","uid":"u"},"spec":%s}`, kind, namespace, spec)
}

// quoted is a string in JSON.
func quoted(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// with puts a value into a spec, for its %v.
func with(spec, value string) string { return strings.Replace(spec, "%v", value, 1) }
