package doctor

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/deploy"
)

const applyManifest = "kubectl apply --server-side -f deploy/install.yaml of the release that is to run."

func checkKinds(f *Facts) (found []Finding) {
	for _, o := range deploy.Definitions() {
		d := f.Definitions[o.GetName()]
		object := "CustomResourceDefinition " + o.GetName()
		if d == nil {
			found = append(found, problem(object, applyManifest, "it is missing"))
			continue
		}
		if reason := refusedNames(d); reason != "" {
			found = append(found, problem(object, "Another definition has one of its names; remove that one.", "the API server does not serve it: %s", reason))
		}
		release, there := schemaOf(o), schemaOf(d)
		if there == nil {
			found = append(found, problem(object, applyManifest, "it is of an older release than this program: it does not serve %s", v1beta1.SchemeGroupVersion.Version))
			continue
		}
		if missing := lacks("", there, release); len(missing) > 0 {
			found = append(found, problem(object, applyManifest, "it is of an older release than this program: it lacks %s", few(missing)))
		}
		if extra := lacks("", release, there); len(extra) > 0 {
			found = append(found, warn(object, "Use the program of the release that is installed: kubectl exec in a controller pod has it.", "it is of a newer release than this program: it has %s", few(extra)))
		}
	}
	return found
}

// few names some of many.
func few(all []string) string {
	slices.Sort(all)
	if len(all) > 4 {
		return strings.Join(all[:4], ", ") + " and more"
	}
	return strings.Join(all, ", ")
}

// refusedNames is why a definition is not served.
func refusedNames(d *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(d.Object, "status", "conditions")
	for _, one := range conditions {
		c, _ := one.(map[string]any)
		if (c["type"] == "NamesAccepted" || c["type"] == "Established") && c["status"] == "False" {
			message, _ := c["message"].(string)
			return message
		}
	}
	return ""
}

// schemaOf the version that is used here; nil if it has none.
func schemaOf(d *unstructured.Unstructured) map[string]any {
	all, _, _ := unstructured.NestedSlice(d.Object, "spec", "versions")
	for _, one := range all {
		version, _ := one.(map[string]any)
		if version["name"] == v1beta1.SchemeGroupVersion.Version && version["served"] == true {
			s, _, _ := unstructured.NestedMap(version, "schema", "openAPIV3Schema")
			return s
		}
	}
	return nil
}

// lacks names the fields that a schema does not have and another has.
func lacks(path string, schema, other map[string]any) (fields []string) {
	properties, _ := schema["properties"].(map[string]any)
	all, _ := other["properties"].(map[string]any)
	for name, property := range all {
		at := strings.TrimPrefix(path+"."+name, ".")
		if properties[name] == nil {
			fields = append(fields, at)
			continue
		}
		there, _ := properties[name].(map[string]any)
		wanted, _ := property.(map[string]any)
		fields = append(fields, lacks(at, there, wanted)...)
	}
	for _, below := range []string{"items", "additionalProperties"} {
		there, _ := schema[below].(map[string]any)
		if wanted, is := other[below].(map[string]any); is {
			fields = append(fields, lacks(path, there, wanted)...)
		}
	}
	return fields
}
