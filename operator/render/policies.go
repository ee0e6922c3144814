package render

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-storage/holdfast/deploy"
)

var (
	admissionPolicyKind  = schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicy"}
	admissionBindingKind = schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicyBinding"}
)

// policies let the API server itself tell what the schemas of the kinds cannot. An older one has no such kind.
func (p *plan) policies() ([]object, error) {
	if !p.Has(admissionPolicyKind) || !p.Has(admissionBindingKind) {
		return nil, nil
	}
	all, err := deploy.Objects(deploy.Policies)
	if err != nil {
		return nil, err
	}
	objects := make([]object, 0, len(all))
	for _, o := range all {
		inNamespace(o.Object, p.Namespace)
		objects = append(objects, o)
	}
	return objects, nil
}

// inNamespace puts the namespace of Holdfast in the place of the one that the expressions of the manifests have.
func inNamespace(value any, namespace string) any {
	switch value := value.(type) {
	case string:
		return strings.ReplaceAll(value, deploy.Namespace, namespace)
	case map[string]any:
		for key, inner := range value {
			value[key] = inNamespace(inner, namespace)
		}
	case []any:
		for i, inner := range value {
			value[i] = inNamespace(inner, namespace)
		}
	}
	return value
}
