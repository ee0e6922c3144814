package render

import (
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/deploy"
)

func controllerOf(t *testing.T, in Input) *apps.Deployment {
	t.Helper()
	return must[apps.Deployment](t, in, "Deployment", "holdfast-controller")
}

// withSpec is a Deployment for a spec.
func withSpec(t *testing.T, write func(*v1beta1.StorageClusterSpec)) *apps.Deployment {
	t.Helper()
	return controllerOf(t, ask(write))
}

// podsOf are those of the controller, of a node and of the controller of snapshots, where there is all of them.
func podsOf(t *testing.T, in Input) []core.PodSpec {
	t.Helper()
	return []core.PodSpec{
		controllerOf(t, in).Spec.Template.Spec, nodeOf(t, in).Spec.Template.Spec,
		must[apps.Deployment](t, in, "Deployment", "holdfast-snapshot-controller").Spec.Template.Spec,
	}
}

func names(containers []core.Container) (all []string) {
	for _, c := range containers {
		all = append(all, c.Name)
	}
	return all
}

// arguments returns those of a container, which must be there.
func arguments(t *testing.T, pod core.PodSpec, name string) []string {
	t.Helper()
	c := container(&pod, name)
	if c == nil {
		t.Fatalf("there is no container %s, only %v", name, names(pod.Containers))
	}
	return c.Args
}

func TestController_StatefulSetRunsTheSamePods(t *testing.T) {
	as := func(strategy v1beta1.ControllerKind) Input {
		in := everything()
		in.Cluster.Spec.Controller.Kind = strategy
		in.Cluster.Spec.Controller.Replicas = new(int32(3))
		return in
	}
	d := controllerOf(t, as(v1beta1.AsDeployment))
	s := must[apps.StatefulSet](t, as(v1beta1.AsStatefulSet), "StatefulSet", "holdfast-controller")
	if look[apps.Deployment](t, as(v1beta1.AsStatefulSet), "Deployment", "holdfast-controller") != nil || look[apps.StatefulSet](t, as(""), "StatefulSet", "holdfast-controller") != nil {
		t.Error("it is both")
	}
	if *s.Spec.Replicas != 3 || s.Spec.PodManagementPolicy != apps.ParallelPodManagement || s.Spec.UpdateStrategy.Type != apps.RollingUpdateStatefulSetStrategyType {
		t.Errorf("it is run by %+v", s.Spec)
	}
	level := "--capacity-ownerref-level=1"
	if args := arguments(t, s.Spec.Template.Spec, "csi-provisioner"); !slices.Contains(args, level) {
		t.Errorf("capacity would belong to an owner of the StatefulSet: %v", args)
	}
	if spread := s.Spec.Template.Spec.TopologySpreadConstraints[0].MatchLabelKeys; !slices.Equal(spread, []string{"controller-revision-hash"}) {
		t.Errorf("its pods are spread by %v, which they do not have", spread)
	}
	// The rest is the same.
	pod := d.Spec.Template.Spec
	replaceArgument(container(&pod, "csi-provisioner"), "--capacity-ownerref-level", "1")
	pod.TopologySpreadConstraints[0].MatchLabelKeys = []string{"controller-revision-hash"}
	same(t, d.Spec.Template, s.Spec.Template)
	same(t, d.Spec.Selector, s.Spec.Selector)
	same(t, d.Labels, s.Labels)
}

func TestPause_AndDebugReplaceNoPodOfANode(t *testing.T) {
	quiet := nodeOf(t, ask(nil)).Spec
	same(t, quiet, nodeOf(t, ask(func(s *v1beta1.StorageClusterSpec) { s.Debug = true })).Spec)
	same(t, withSpec(t, nil).Spec, withSpec(t, func(s *v1beta1.StorageClusterSpec) { s.Paused = true }).Spec)
}

func TestController_MatchesTheManifest(t *testing.T) {
	in := Input{Cluster: &v1beta1.StorageCluster{}, Namespace: deploy.Namespace}
	in.Cluster.Name = "holdfast"
	installed := deploy.Objects(deploy.Controller)
	compared := 0
	for _, o := range rendered(t, in) {
		for _, want := range installed {
			if o.GetKind() == want.GetKind() && o.GetName() == want.GetName() {
				want.SetNamespace(deploy.Namespace)
				want.SetAnnotations(nil) // its release, which the operator leaves as it is
				same(t, want.Object, o.Object)
				compared++
			}
		}
	}
	if compared != len(installed) || compared != 1 {
		t.Errorf("compared were %d of %d", compared, len(installed))
	}
}

func TestController_VersionIsALabel(t *testing.T) {
	if got := withSpec(t, nil).Labels["app.kubernetes.io/version"]; got != deploy.Version || got == "" {
		t.Errorf("it is %q", got)
	}
	if strings.Contains(must[apps.DaemonSet](t, ask(nil), "DaemonSet", "holdfast-node").Spec.Template.Labels["app.kubernetes.io/version"], deploy.Version) {
		t.Error("the pods of the nodes would be replaced for a label")
	}
}
