package render

import (
	"fmt"
	"maps"
	"slices"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

func checkPods(p *plan) error {
	for i, secret := range p.spec.ImagePullSecrets {
		if err := checkName(fmt.Sprintf("spec.imagePullSecrets[%d].name", i), secret.Name); err != nil {
			return err
		}
	}
	if p.spec.PriorityClass != "" {
		if err := checkName("spec.priorityClass", p.spec.PriorityClass); err != nil {
			return err
		}
	}
	for i, toleration := range p.spec.Tolerations {
		if err := checkToleration(fmt.Sprintf("spec.tolerations[%d]", i), toleration); err != nil {
			return err
		}
	}
	return checkResources(p.spec.Resources)
}

func checkToleration(at string, t core.Toleration) error {
	if err := oneOf(at+".operator", t.Operator, "", core.TolerationOpEqual, core.TolerationOpExists); err != nil {
		return err
	}
	if err := oneOf(at+".effect", t.Effect, "", core.TaintEffectNoSchedule, core.TaintEffectPreferNoSchedule, core.TaintEffectNoExecute); err != nil {
		return err
	}
	switch wrong := validation.IsQualifiedName(t.Key); {
	case t.Key == "" && t.Operator != core.TolerationOpExists:
		return fmt.Errorf("%s.operator: %q needs a key: without one it must be Exists, which tolerates everything", at, t.Operator)
	case t.Key != "" && len(wrong) > 0:
		return fmt.Errorf("%s.key: %.300q cannot be the key of a taint: %s", at, t.Key, wrong[0])
	case t.Operator == core.TolerationOpExists && t.Value != "":
		return fmt.Errorf("%s.value: %.80q is not allowed with the operator Exists: leave it out", at, t.Value)
	case len(validation.IsValidLabelValue(t.Value)) > 0:
		return fmt.Errorf("%s.value: %.300q cannot be the value of a taint: %s", at, t.Value, validation.IsValidLabelValue(t.Value)[0])
	case t.TolerationSeconds != nil && t.Effect != core.TaintEffectNoExecute:
		return fmt.Errorf("%s.tolerationSeconds: %d is not allowed with the effect %q: it must be NoExecute", at, *t.TolerationSeconds, t.Effect)
	}
	return nil
}

func checkResources(r core.ResourceRequirements) error {
	if len(r.Claims) > 0 {
		return fmt.Errorf("spec.resources.claims: %s is not allowed: Holdfast uses no devices; set requests and limits", r.Claims[0].Name)
	}
	if err := checkQuantities("spec.resources.requests", r.Requests); err != nil {
		return err
	}
	if err := checkQuantities("spec.resources.limits", r.Limits); err != nil {
		return err
	}
	for _, resource := range slices.Sorted(maps.Keys(r.Requests)) {
		request := r.Requests[resource]
		if limit, limited := r.Limits[resource]; limited && request.Cmp(limit) > 0 {
			return fmt.Errorf("spec.resources.requests.%s: %s is not allowed: it must not be above the limit, which is %s", resource, request.String(), limit.String())
		}
	}
	return nil
}

func checkQuantities(field string, list core.ResourceList) error {
	for _, resource := range slices.Sorted(maps.Keys(list)) {
		quantity := list[resource]
		if wrong := validation.IsQualifiedName(string(resource)); len(wrong) > 0 {
			return fmt.Errorf("%s: %.300q cannot be a resource: it must be one such as cpu or memory", field, resource)
		}
		if quantity.Sign() < 0 {
			return fmt.Errorf("%s.%s: %s is not allowed: it must not be below 0", field, resource, quantity.String())
		}
	}
	return nil
}
