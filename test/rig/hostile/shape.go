package hostile

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Text is a spec as a person can read it.
func Text(spec any) string {
	text, err := json.Marshal(spec)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%.3000s", text)
}

// WrongMeta says what of an object's metadata the API server would refuse.
func WrongMeta(o metav1.Object) []string {
	return texts(validation.ValidateObjectMetaAccessor(o, o.GetNamespace() != "", validation.NameIsDNSSubdomain, field.NewPath("metadata")))
}

// WrongConditions says what of conditions the API server would refuse.
func WrongConditions(all []metav1.Condition) []string {
	wrong := texts(metavalidation.ValidateConditions(all, field.NewPath("status.conditions")))
	for _, c := range all {
		if !utf8.ValidString(c.Message) {
			wrong = append(wrong, c.Type+": its message is no UTF-8")
		}
	}
	return wrong
}

func texts(errs field.ErrorList) (all []string) {
	for _, err := range errs {
		all = append(all, err.Error())
	}
	return all
}

// WrongPod says what of a pod the API server would refuse.
func WrongPod(spec *core.PodSpec) (wrong []string) {
	note := func(bad bool, format string, args ...any) {
		if bad {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	volumes, names := map[string]bool{}, map[string]bool{}
	for _, v := range spec.Volumes {
		note(volumes[v.Name] || len(utilvalidation.IsDNS1123Label(v.Name)) > 0, "volume %.80q", v.Name)
		volumes[v.Name] = true
		if v.HostPath != nil {
			note(!strings.HasPrefix(v.HostPath.Path, "/") || strings.Contains(v.HostPath.Path, ".."), "host path %.80q", v.HostPath.Path)
		}
	}
	for i := range spec.Containers {
		c := &spec.Containers[i]
		note(names[c.Name] || len(utilvalidation.IsDNS1123Label(c.Name)) > 0, "container %.80q", c.Name)
		names[c.Name] = true
		note(strings.TrimSpace(c.Image) == "" || strings.TrimSpace(c.Image) != c.Image, "container %s: image %.80q", c.Name, c.Image)
		wrong = append(wrong, wrongContainer(c, volumes)...)
	}
	note(len(spec.Containers) == 0, "no container")
	if d := spec.ActiveDeadlineSeconds; d != nil {
		note(*d < 1 || *d > 1<<31-1, "activeDeadlineSeconds %d", *d)
	}
	for _, s := range spec.ImagePullSecrets {
		note(s.Name == "", "a pull secret without a name")
	}
	if a := spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		note(len(a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms) == 0, "an affinity without terms")
	}
	return wrong
}

func wrongContainer(c *core.Container, volumes map[string]bool) (wrong []string) {
	mounted := map[string]bool{}
	for _, m := range c.VolumeMounts {
		if !volumes[m.Name] || m.MountPath == "" || mounted[m.MountPath] {
			wrong = append(wrong, fmt.Sprintf("container %s: mount of %.80q at %.80q", c.Name, m.Name, m.MountPath))
		}
		mounted[m.MountPath] = true
	}
	for _, p := range c.Ports {
		if p.ContainerPort < 1 || p.ContainerPort > 65535 {
			wrong = append(wrong, fmt.Sprintf("container %s: port %d", c.Name, p.ContainerPort))
		}
	}
	for resource, request := range c.Resources.Requests {
		if limit, limited := c.Resources.Limits[resource]; request.Sign() < 0 || limited && request.Cmp(limit) > 0 {
			wrong = append(wrong, fmt.Sprintf("container %s: request of %s of %s", c.Name, request.String(), resource))
		}
	}
	return wrong
}
