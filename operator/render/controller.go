package render

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/deploy"
)

const apiPort = "api" // of the container and the Service

// controller returns the workload of the operator itself.
func (p *plan) controller() []object {
	deployment := Manifest[apps.Deployment](deploy.Controller, v1beta1.ControllerName)
	deployment.Labels[v1beta1.VersionLabel] = deploy.Version
	delete(deployment.Annotations, v1beta1.ManifestAnnotation)
	if p.spec.Controller.Replicas != nil {
		deployment.Spec.Replicas = p.spec.Controller.Replicas
	}
	p.controllerContainers(&deployment.Spec.Template.Spec)
	p.applyPodSettings(&deployment.Spec.Template.Spec)
	if p.spec.Controller.Kind == v1beta1.AsStatefulSet {
		set := statefulSet(deployment)
		p.applyControllerSettings(&set.Spec.Template)
		return []object{set}
	}
	p.applyControllerSettings(&deployment.Spec.Template)
	return []object{deployment}
}

// applyControllerSettings sets what a StorageCluster specifies for the pods of the controller alone.
func (p *plan) applyControllerSettings(template *core.PodTemplateSpec) {
	spec, pod := p.spec.Controller, &template.Spec
	selector := &metav1.LabelSelector{MatchLabels: maps.Clone(template.Labels)}
	applyOwnSettings(template, spec.PodSettings)
	maps.Copy(pod.NodeSelector, spec.NodeSelector)
	pod.Affinity = spec.Affinity
	pod.Tolerations = append(pod.Tolerations, spec.Tolerations...)
	if len(spec.TopologySpreadConstraints) > 0 {
		pod.TopologySpreadConstraints = slices.Clone(spec.TopologySpreadConstraints)
		for i := range pod.TopologySpreadConstraints {
			if c := &pod.TopologySpreadConstraints[i]; c.LabelSelector == nil {
				c.LabelSelector = selector
			}
		}
	}
	main := container(pod, name)
	main.Args = append(main.Args, spec.ExtraArgs...)
}

func (p *plan) controllerContainers(pod *core.PodSpec) {
	main := container(pod, name)
	main.Image = string(cmp.Or(p.ControllerImage, p.images.Holdfast))
	main.Env = append(main.Env, p.Release.environment()...)
	for i := range main.Ports {
		if main.Ports[i].Name == apiPort {
			main.Ports[i].ContainerPort = p.targetPort()
		}
	}
	replaceArgument(main, "--api-address", fmt.Sprintf(":%d", p.targetPort()))
	if !p.withCSI() {
		pod.Containers = slices.DeleteFunc(pod.Containers, func(c core.Container) bool { return c.Name != name })
		return
	}
	container(pod, "csi-provisioner").Image = string(p.images.CSIProvisioner)
	container(pod, "csi-resizer").Image = string(p.images.CSIResizer)
	container(pod, "csi-snapshotter").Image = string(p.images.CSISnapshotter)
	if p.spec.Attaches() {
		main.Args = append(main.Args, "--attach")
		beside := Manifest[core.PodTemplate](deploy.Sidecars, v1beta1.ControllerName)
		pod.Containers = append(pod.Containers, sidecar(beside, "csi-attacher", p.images.CSIAttacher))
	}
}

// statefulSet returns the same workload as a StatefulSet. With several replicas, one that does not become ready leaves
// the others as they were.
func statefulSet(d *apps.Deployment) *apps.StatefulSet {
	set := &apps.StatefulSet{ObjectMeta: d.ObjectMeta, Spec: apps.StatefulSetSpec{
		Replicas:    d.Spec.Replicas,
		Selector:    d.Spec.Selector,
		Template:    d.Spec.Template,
		ServiceName: v1beta1.ControllerName, // it does not exist: the pods are not addressed by name
		// With OrderedReady, a pod that never becomes ready could not be replaced.
		PodManagementPolicy: apps.ParallelPodManagement,
		UpdateStrategy:      apps.StatefulSetUpdateStrategy{Type: apps.RollingUpdateStatefulSetStrategyType},
	}}
	pod := &set.Spec.Template.Spec
	for i := range pod.TopologySpreadConstraints {
		pod.TopologySpreadConstraints[i].MatchLabelKeys = []string{apps.ControllerRevisionHashLabelKey}
	}
	if provisioner := container(pod, "csi-provisioner"); provisioner != nil {
		replaceArgument(provisioner, "--capacity-ownerref-level", "1") // the pod's own owner
	}
	return set
}
