package render

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

func checkPods(p *plan) error {
	for i, secret := range p.spec.ImagePullSecrets {
		if err := checkName(fmt.Sprintf("spec.imagePullSecrets[%d].name", i), secret.Name); err != nil {
			return err
		}
	}
	if p.spec.PriorityClassName != "" {
		if err := checkName("spec.priorityClassName", p.spec.PriorityClassName); err != nil {
			return err
		}
	}
	for i, toleration := range p.spec.Tolerations {
		if err := checkToleration(fmt.Sprintf("spec.tolerations[%d]", i), toleration); err != nil {
			return err
		}
	}
	if err := oneOf("spec.imagePullPolicy", p.spec.ImagePullPolicy, "", core.PullAlways, core.PullIfNotPresent, core.PullNever); err != nil {
		return err
	}
	if err := checkResources("spec.resources", p.spec.Resources); err != nil {
		return err
	}
	if err := checkOwn("spec.node", p.spec.Node); err != nil {
		return err
	}
	if err := checkLabels("spec.monitoring.labels", p.spec.Monitoring.Labels); err != nil {
		return err
	}
	return checkController(p.spec.Controller)
}

// checkController checks some fields; the API server refuses the workload if others are invalid.
func checkController(c v1beta1.ControllerSpec) error {
	if err := checkNodeAffinity("spec.controller.affinity.nodeAffinity", c.Affinity); err != nil {
		return err
	}
	for i, toleration := range c.Tolerations {
		if err := checkToleration(fmt.Sprintf("spec.controller.tolerations[%d]", i), toleration); err != nil {
			return err
		}
	}
	if err := checkLabels("spec.controller.nodeSelector", c.NodeSelector); err != nil {
		return err
	}
	if err := checkOwn("spec.controller", c.PodSettings); err != nil {
		return err
	}
	return checkExtraArgs(c.ExtraArgs)
}

func checkOwn(at string, s v1beta1.PodSettings) error {
	if s.PriorityClassName != "" {
		if err := checkName(at+".priorityClassName", s.PriorityClassName); err != nil {
			return err
		}
	}
	if err := checkAnnotations(at+".podAnnotations", s.PodAnnotations); err != nil {
		return err
	}
	if err := checkLabels(at+".podLabels", s.PodLabels); err != nil {
		return err
	}
	for _, key := range []string{v1beta1.NameLabel, v1beta1.ComponentLabel} {
		if value, given := s.PodLabels[key]; given {
			return fmt.Errorf("%s.podLabels: %s=%.80s is not allowed: by this label Holdfast finds its pods; leave it out", at, key, value)
		}
	}
	return checkResources(at+".resources", s.Resources)
}

func checkNodeAffinity(at string, a *core.Affinity) error {
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	at += ".requiredDuringSchedulingIgnoredDuringExecution"
	terms := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	if len(terms) == 0 {
		return fmt.Errorf("%s.nodeSelectorTerms: it must have a term: without one no node matches; leave it out to allow all", at)
	}
	return checkTerms(at, terms)
}

func checkLabels(field string, labels map[string]string) error {
	for _, key := range sortedKeys(labels) {
		if wrong := validation.IsQualifiedName(key); len(wrong) > 0 {
			return fmt.Errorf("%s: %.300q cannot be the key of a label: %s", field, key, wrong[0])
		}
		if wrong := validation.IsValidLabelValue(labels[key]); len(wrong) > 0 {
			return fmt.Errorf("%s: %.300q cannot be the value of the label %s: %s", field, labels[key], key, wrong[0])
		}
	}
	return nil
}

// ownArgs are the flags of holdfast controller that the pods depend on, or that have a field, and why none is allowed.
var ownArgs = map[string]string{
	"endpoint": "the sidecars connect there", "snapshotter-endpoint": "the sidecars connect there", "identity": "it is the name of the pod",
	"namespace": "it is that of the pod", "metrics-address": "the probes connect there", "kubeconfig": "the pod has an account",
	"driver-name": "the name of the driver is fixed", "operator": "spec.paused stops it", "operator-alone": "spec.paused stops it",
	"attach": "set spec.csi.attachRequired", "api-address": "set spec.service.targetPort",
}

// IsOwnArg returns whether a flag of holdfast controller is refused in spec.controller.extraArgs.
func IsOwnArg(name string) bool { return ownArgs[name] != "" }

// ExtraArgs are the other flags of holdfast controller.
var ExtraArgs = []string{"log-format", "log-level", "stop-timeout"}

var argument = regexp.MustCompile(`^--?([a-z][a-z0-9-]*)(=.*)?$`)

func checkExtraArgs(args []string) error {
	for i, arg := range args {
		match := argument.FindStringSubmatch(arg)
		if match == nil {
			return fmt.Errorf("spec.controller.extraArgs[%d]: %.80q cannot be an argument: write each as --name=value", i, arg)
		}
		if why := ownArgs[match[1]]; why != "" {
			return fmt.Errorf("spec.controller.extraArgs[%d]: --%s is not allowed: %s", i, match[1], why)
		}
		if !slices.Contains(ExtraArgs, match[1]) { // the process would ignore it
			return fmt.Errorf("spec.controller.extraArgs[%d]: holdfast controller has no flag --%.80s; allowed are --%s", i, match[1], strings.Join(ExtraArgs, ", --"))
		}
	}
	return nil
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

func checkResources(field string, r core.ResourceRequirements) error {
	if len(r.Claims) > 0 {
		return fmt.Errorf("%s.claims: %s is not allowed: Holdfast uses no devices; set requests and limits", field, r.Claims[0].Name)
	}
	if err := checkQuantities(field+".requests", r.Requests); err != nil {
		return err
	}
	if err := checkQuantities(field+".limits", r.Limits); err != nil {
		return err
	}
	for _, resource := range slices.Sorted(maps.Keys(r.Requests)) {
		request := r.Requests[resource]
		if limit, limited := r.Limits[resource]; limited && request.Cmp(limit) > 0 {
			return fmt.Errorf("%s.requests.%s: %s is not allowed: it must not be above the limit, which is %s", field, resource, request.String(), limit.String())
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
