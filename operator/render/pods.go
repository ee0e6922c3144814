package render

import (
	"cmp"
	"maps"
	"strings"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// defaultContainer is where kubectl looks when no container is named.
const defaultContainer = "kubectl.kubernetes.io/default-container"

// applyPodSettings sets what a StorageCluster specifies for all pods.
func (p *plan) applyPodSettings(pod *core.PodSpec) {
	pod.ImagePullSecrets = p.spec.ImagePullSecrets
	SetPullPolicy(pod, p.spec.ImagePullPolicy)
	pod.Tolerations = append(pod.Tolerations, p.spec.Tolerations...)
	if p.spec.PriorityClassName != "" {
		pod.PriorityClassName = p.spec.PriorityClassName
	}
	setResources(pod, p.spec.Resources)
	if p.spec.Debug {
		for i := range pod.Containers {
			// The containers of Holdfast follow the StorageCluster, or a file.
			if c := &pod.Containers[i]; c.Name != name {
				c.Args = append(c.Args, "--v=5")
			}
		}
	}
}

// applyOwnSettings sets what a StorageCluster specifies for the pods of one component.
func applyOwnSettings(template *core.PodTemplateSpec, s v1beta1.PodSettings) {
	for key, value := range s.PodAnnotations {
		metav1.SetMetaDataAnnotation(&template.ObjectMeta, key, value)
	}
	maps.Copy(template.Labels, s.PodLabels)
	template.Spec.PriorityClassName = cmp.Or(s.PriorityClassName, template.Spec.PriorityClassName)
	setResources(&template.Spec, s.Resources)
}

func setResources(pod *core.PodSpec, r core.ResourceRequirements) {
	if main := container(pod, name); main != nil && (r.Requests != nil || r.Limits != nil) {
		main.Resources = r
	}
}

// SetPullPolicy sets that of all containers; that of the manifests stays if it is empty.
func SetPullPolicy(pod *core.PodSpec, policy core.PullPolicy) {
	for _, containers := range [][]core.Container{pod.InitContainers, pod.Containers} {
		for i := range containers {
			containers[i].ImagePullPolicy = cmp.Or(policy, containers[i].ImagePullPolicy)
		}
	}
}

// container returns the one of that name, nil if there is none.
func container(pod *core.PodSpec, name string) *core.Container {
	return v1beta1.Find(pod.Containers, func(c core.Container) bool { return c.Name == name })
}

// ImageOf returns the image of Holdfast's container in a pod; "" if it has none.
func ImageOf(pod *core.PodSpec) v1beta1.Image {
	if c := container(pod, name); c != nil {
		return v1beta1.Image(c.Image)
	}
	return ""
}

// sidecar returns an optional container of the manifests.
func sidecar(template *core.PodTemplate, name string, image v1beta1.Image) core.Container {
	c := container(&template.Template.Spec, name)
	c.Image = string(image)
	return *c
}

// replaceArgument replaces the argument that begins with a flag.
func replaceArgument(c *core.Container, flag, value string) {
	for i, argument := range c.Args {
		if strings.HasPrefix(argument, flag+"=") {
			c.Args[i] = flag + "=" + value
		}
	}
}
