package render

import (
	"fmt"
	"maps"
	"path"
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

// checkAll refuses an invalid spec before anything is applied. The API server refuses most of it too, but an object may
// come from a file, or be older than a rule.
func checkAll(p *plan) error {
	for _, check := range []func(*plan) error{checkCluster, checkImages, checkCSI, checkPools, checkCephKeys, checkEphemeral, checkClasses, checkDefault, checkPods, checkAccess} {
		if err := check(p); err != nil {
			return err
		}
	}
	return nil
}

func checkCluster(p *plan) error {
	if wrong := validation.IsValidLabelValue(p.Cluster.Name); p.Cluster.Name == "" || len(wrong) > 0 {
		return fmt.Errorf("metadata.name: %.80q cannot be a label: at most 63 letters, digits, - and . are allowed", p.Cluster.Name)
	}
	if err := oneOf("spec.deletionPolicy", p.spec.DeletionPolicy, "", v1beta1.RefuseDeletion, v1beta1.OrphanVolumes); err != nil {
		return err
	}
	if err := checkFencing(p.spec.Fencing); err != nil {
		return err
	}
	return checkTerms("spec", p.spec.NodeSelectorTerms)
}

func checkFencing(f v1beta1.FencingSpec) error {
	if err := oneOf("spec.fencing.pods", f.Pods, "", v1beta1.FenceLabelled, v1beta1.FenceWithCephVolumes, v1beta1.FenceNone); err != nil {
		return err
	}
	after, err := f.After.Or(v1beta1.ShortestFencing)
	if err != nil {
		return fmt.Errorf("spec.fencing.after: %w", err)
	}
	if after < v1beta1.ShortestFencing {
		return fmt.Errorf("spec.fencing.after: %s is not allowed: it must be at least 1m, since a node is silent for up to 40 seconds when its pod is replaced; or leave it out, so that silence is not enough", *f.After)
	}
	return nil
}

func checkCSI(p *plan) error {
	controller := p.spec.Controller
	if r := controller.Replicas; r != nil && (*r < 1 || *r > 9) {
		return fmt.Errorf("spec.controller.replicas: %d is not allowed: it must be 1 to 9", *r)
	}
	if err := oneOf("spec.controller.kind", controller.Kind, "", v1beta1.AsDeployment, v1beta1.AsStatefulSet); err != nil {
		return err
	}
	if controller.Kind == v1beta1.AsStatefulSet && controller.Replicas != nil && *controller.Replicas < 2 {
		return fmt.Errorf("spec.controller.replicas: %d is not allowed with spec.controller.kind StatefulSet, which replaces its pods in place: give at least 2, or leave it out", *controller.Replicas)
	}
	if err := checkDir("spec.csi.kubeletDir", p.kubeletDir); err != nil {
		return err
	}
	if within(p.kubeletDir, hostDir) || within(hostDir, p.kubeletDir) {
		return fmt.Errorf("spec.csi.kubeletDir: %s is not allowed: it overlaps %s, the directory of Holdfast", p.kubeletDir, hostDir)
	}
	return nil
}

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

var directory = regexp.MustCompile(`^(/[A-Za-z0-9._-]+)+$`)

// checkDir requires an absolute, clean path, which can be compared with others.
func checkDir(field, dir string) error {
	if !directory.MatchString(dir) || path.Clean(dir) != dir || len(dir) > 255 {
		return fmt.Errorf("%s: %.300q is not allowed: it must be an absolute directory other than /, of at most 255 letters, digits and . _ - /, without . and .. between slashes and without one at its end", field, dir)
	}
	return nil
}

// oneOf refuses values that are not allowed. An empty one is allowed.
func oneOf[T ~string](field string, value T, allowed ...T) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	var names []string
	for _, a := range allowed {
		if a != "" {
			names = append(names, string(a))
		}
	}
	return fmt.Errorf("%s: %.80q is not known: it must be %s", field, string(value), strings.Join(names, " or "))
}

// checkName requires a valid name of an object.
func checkName(field, value string) error {
	if wrong := validation.IsDNS1123Subdomain(value); len(wrong) > 0 {
		return fmt.Errorf("%s: %.300q cannot be a name: %s", field, value, wrong[0])
	}
	return nil
}

func checkAnnotations(field string, annotations map[string]string) error {
	for _, key := range sortedKeys(annotations) {
		if wrong := validation.IsQualifiedName(strings.ToLower(key)); len(wrong) > 0 {
			return fmt.Errorf("%s: %.300q cannot be the key of an annotation: %s", field, key, wrong[0])
		}
	}
	return nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
