package render

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// checkAll refuses what neither the schema of the kind refuses nor the API server when it is given the objects: what does not
// fit together, and what only programs of Holdfast would find.
func checkAll(p *plan) error {
	for _, check := range []func(*plan) error{checkFencing, checkKubelet, checkTermsOfAll, checkPools, checkCephKeys, checkEphemeral, checkClasses, checkDefault, checkPods, checkExtraArgs} {
		if err := check(p); err != nil {
			return err
		}
	}
	return nil
}

func checkFencing(p *plan) error {
	f := p.spec.Fencing
	after, err := f.After.Or(v1beta1.ShortestFencing)
	if err != nil {
		return fmt.Errorf("spec.fencing.after: %w", err)
	}
	if after < v1beta1.ShortestFencing {
		return fmt.Errorf("spec.fencing.after: %s is not allowed: it must be at least 1m, since a node is silent for up to 40 seconds when its pod is replaced; or leave it out, so that silence is not enough", *f.After)
	}
	return nil
}

func checkKubelet(p *plan) error {
	if within(p.kubeletDir, hostDir) || within(hostDir, p.kubeletDir) {
		return fmt.Errorf("spec.csi.kubeletDir: %s is not allowed: it overlaps %s, the directory of Holdfast", p.kubeletDir, hostDir)
	}
	return nil
}

func checkTermsOfAll(p *plan) error { return checkTerms("spec", p.spec.NodeSelectorTerms) }

// checkTerms refuses terms that agents and controllers could not evaluate.
func checkTerms(parent string, terms []core.NodeSelectorTerm) error {
	if len(terms) == 0 {
		return nil
	}
	if _, err := nodeaffinity.NewNodeSelector(&core.NodeSelector{NodeSelectorTerms: terms}, field.WithPath(field.NewPath(parent))); err != nil {
		return fmt.Errorf("%.500s", err.Error()) // the error quotes the invalid value
	}
	for i, term := range terms {
		for j, f := range term.MatchFields {
			if f.Key != metav1.ObjectNameField {
				return fmt.Errorf("%s.nodeSelectorTerms[%d].matchFields[%d].key: %.80q is not known: it must be %s", parent, i, j, f.Key, metav1.ObjectNameField)
			}
		}
	}
	return nil
}

// checkPods refuses what pods would be made with, and not run or not have.
func checkPods(p *plan) error {
	for i, secret := range p.spec.ImagePullSecrets {
		if wrong := validation.IsDNS1123Subdomain(secret.Name); len(wrong) > 0 {
			return fmt.Errorf("spec.imagePullSecrets[%d].name: %.300q cannot be a name: %s", i, secret.Name, wrong[0])
		}
	}
	for _, r := range []struct {
		at     string
		claims []core.ResourceClaim
	}{
		{"spec", p.spec.Resources.Claims}, {"spec.node", p.spec.Node.Resources.Claims}, {"spec.controller", p.spec.Controller.Resources.Claims},
	} {
		if len(r.claims) > 0 {
			return fmt.Errorf("%s.resources.claims: %s is not allowed: Holdfast uses no devices; set requests and limits", r.at, r.claims[0].Name)
		}
	}
	return nil
}

// ownArgs are the flags of holdfast controller that the pods depend on, or that have a field, and why none is allowed.
var ownArgs = map[string]string{
	"endpoint": "the sidecars connect there", "snapshotter-endpoint": "the sidecars connect there", "identity": "it is the name of the pod",
	"namespace": "it is that of the pod", "metrics-address": "the probes connect there", "kubeconfig": "the pod has an account",
	"driver-name": "the name of the driver is fixed", "operator": "spec.paused stops it", "operator-alone": "spec.paused stops it",
	"attach": "pools in Ceph clusters set it", "api-address": "set spec.service.targetPort",
}

// IsOwnArg returns whether a flag of holdfast controller is refused in spec.controller.extraArgs.
func IsOwnArg(name string) bool { return ownArgs[name] != "" }

// ExtraArgs are the other flags of holdfast controller.
var ExtraArgs = []string{"log-format", "log-level", "stop-timeout"}

var argument = regexp.MustCompile(`^--?([a-z][a-z0-9-]*)(=.*)?$`)

func checkExtraArgs(p *plan) error {
	for i, arg := range p.spec.Controller.ExtraArgs {
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

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
