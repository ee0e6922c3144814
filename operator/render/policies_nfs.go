package render

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-storage/holdfast/deploy"
)

// nfsPolicies let the API server itself refuse NFSServers where the StorageCluster allows none.
func (p *plan) nfsPolicies() ([]object, error) {
	if !p.Has(admissionPolicyKind) || !p.Has(admissionBindingKind) {
		return nil, nil
	}
	all, err := deploy.Objects(deploy.NFSPolicies)
	if err != nil {
		return nil, err
	}
	quoted := []string{strconv.Quote(p.Namespace)}
	for _, namespace := range p.spec.NFS.Namespaces {
		quoted = append(quoted, strconv.Quote(namespace))
	}
	var objects []object
	for _, o := range all {
		inNamespace(o.Object, p.Namespace)
		if o.GetKind() == admissionPolicyKind.Kind {
			if err := setVariable(o, "allowed", "["+strings.Join(quoted, ", ")+"]"); err != nil {
				return nil, err
			}
		}
		objects = append(objects, o)
	}
	return objects, nil
}

// setVariable gives a variable of a policy another expression.
func setVariable(policy *unstructured.Unstructured, name, expression string) error {
	variables, _, err := unstructured.NestedSlice(policy.Object, "spec", "variables")
	if err != nil {
		return err
	}
	for _, v := range variables {
		if v, is := v.(map[string]any); is && v["name"] == name {
			v["expression"] = expression
			return unstructured.SetNestedSlice(policy.Object, variables, "spec", "variables")
		}
	}
	return fmt.Errorf("policy %s has no variable %s", policy.GetName(), name)
}
