package render

import (
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
		objects = append(objects, o)
	}
	return objects, nil
}
