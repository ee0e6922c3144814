package hostile

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// What of a status the API server takes, as the schemas of the kinds say.
const longestCondition = 32768

// Text is a spec as a person can read it.
func Text(spec any) string {
	text, err := json.Marshal(spec)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%.3000s", text)
}

// WrongMeta says what of an object's metadata the API server would refuse.
func WrongMeta(o metav1.Object) (wrong []string) {
	note := func(what, value string, complaints []string) {
		if len(complaints) > 0 {
			wrong = append(wrong, fmt.Sprintf("%s %.80q: %s", what, value, complaints[0]))
		}
	}
	note("name", o.GetName(), validation.IsDNS1123Subdomain(o.GetName()))
	if ns := o.GetNamespace(); ns != "" {
		note("namespace", ns, validation.IsDNS1123Label(ns))
	}
	size := 0
	for key, value := range o.GetLabels() {
		note("label", key, validation.IsQualifiedName(key))
		note("label "+key, value, validation.IsValidLabelValue(value))
	}
	for key, value := range o.GetAnnotations() {
		note("annotation", key, validation.IsQualifiedName(strings.ToLower(key)))
		size += len(key) + len(value)
	}
	if size > 256<<10 {
		wrong = append(wrong, fmt.Sprintf("annotations of %d bytes", size))
	}
	return wrong
}

// WrongConditions says what of conditions the API server would refuse.
func WrongConditions(all []metav1.Condition) (wrong []string) {
	for _, c := range all {
		switch {
		case c.Reason == "" || len(validation.IsCIdentifier(c.Reason)) > 0:
			wrong = append(wrong, fmt.Sprintf("%s: its reason is %q", c.Type, c.Reason))
		case len(c.Message) > longestCondition || !utf8.ValidString(c.Message):
			wrong = append(wrong, fmt.Sprintf("%s: its message has %d bytes, valid: %t", c.Type, len(c.Message), utf8.ValidString(c.Message)))
		case c.LastTransitionTime.IsZero():
			wrong = append(wrong, c.Type+": it has no time")
		}
	}
	return wrong
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
		note(volumes[v.Name] || len(validation.IsDNS1123Label(v.Name)) > 0, "volume %.80q", v.Name)
		volumes[v.Name] = true
		if v.HostPath != nil {
			note(!strings.HasPrefix(v.HostPath.Path, "/") || strings.Contains(v.HostPath.Path, ".."), "host path %.80q", v.HostPath.Path)
		}
	}
	for i := range spec.Containers {
		c := &spec.Containers[i]
		note(names[c.Name] || len(validation.IsDNS1123Label(c.Name)) > 0, "container %.80q", c.Name)
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
