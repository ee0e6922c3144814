package render

import (
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

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

func TestController_HasItsSidecars(t *testing.T) {
	d := withSpec(t, nil)
	if got := names(d.Spec.Template.Spec.Containers); !slices.Equal(got, []string{"holdfast", "csi-provisioner", "csi-resizer", "csi-snapshotter"}) {
		t.Errorf("its containers are %v", got)
	}
	if *d.Spec.Replicas != 2 {
		t.Errorf("it has %d replicas", *d.Spec.Replicas)
	}
}

func TestController_NewPodsThatAreNotReadyLeaveTheOldOnes(t *testing.T) {
	update := withSpec(t, nil).Spec.Strategy.RollingUpdate
	if update == nil || update.MaxUnavailable.IntValue() != 0 || update.MaxSurge.IntValue() != 1 {
		t.Errorf("it is updated by %+v", update)
	}
}

func TestController_DoesNotPreventTheDrainOfTheOnlyNodeItFitsOn(t *testing.T) {
	for name, in := range inputs() {
		for _, o := range rendered(t, in) {
			if o.GetKind() == "PodDisruptionBudget" {
				t.Errorf("%s: there is %s %s", name, o.GetKind(), o.GetName())
			}
		}
	}
}

func TestReplicas_AreThoseOfTheSpec(t *testing.T) {
	if d := withSpec(t, func(s *v1beta1.StorageClusterSpec) { s.Controller.Replicas = new(int32(3)) }); *d.Spec.Replicas != 3 {
		t.Errorf("it has %d replicas", *d.Spec.Replicas)
	}
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

func TestController_AttachAddsTheAttacherAndConfiguresTheDriver(t *testing.T) {
	with := withSpec(t, func(s *v1beta1.StorageClusterSpec) { s.CSI.AttachRequired = true; s.Images.CSIAttacher = "r/a:1" }).Spec.Template.Spec
	without := withSpec(t, nil).Spec.Template.Spec
	if c := container(&with, "csi-attacher"); c == nil || c.Image != "r/a:1" || c.VolumeMounts[0].Name != "socket" {
		t.Errorf("the attacher is %+v", c)
	}
	if container(&without, "csi-attacher") != nil {
		t.Error("the attacher runs unasked")
	}
	if !slices.Contains(arguments(t, with, "holdfast"), "--attach") || slices.Contains(arguments(t, without, "holdfast"), "--attach") {
		t.Error("the driver does not know it")
	}
}

func TestController_WithoutCSIHasNoSidecars(t *testing.T) {
	d := withSpec(t, func(s *v1beta1.StorageClusterSpec) {
		s.CSI = v1beta1.CSISpec{Enabled: new(false), AttachRequired: true}
		s.Images.SnapshotController = "r/s:1"
		s.Debug = true
	})
	if got := names(d.Spec.Template.Spec.Containers); !slices.Equal(got, []string{"holdfast"}) {
		t.Errorf("its containers are %v", got)
	}
}

func TestDebug_ReachesTheSidecarsAsArguments(t *testing.T) {
	in := everything()
	pods := podsOf(t, in)
	in.Cluster.Spec.Debug = false
	quiet := podsOf(t, in)
	seen := 0
	for i, pod := range pods {
		for j, c := range pod.Containers {
			// Holdfast hears of it while it runs: no pod of a node is replaced for it.
			if got := slices.Contains(c.Args, "--v=5"); got != (c.Name != "holdfast") {
				t.Errorf("container %s has the arguments %v", c.Name, c.Args)
			}
			if slices.Contains(quiet[i].Containers[j].Args, "--v=5") {
				t.Errorf("container %s is never quiet", c.Name)
			}
			seen++
		}
	}
	if seen != 9 {
		t.Errorf("only %d containers were looked at", seen)
	}
}

func TestPause_AndDebugReplaceNoPodOfANode(t *testing.T) {
	quiet := nodeOf(t, ask(nil)).Spec
	same(t, quiet, nodeOf(t, ask(func(s *v1beta1.StorageClusterSpec) { s.Debug = true })).Spec)
	same(t, withSpec(t, nil).Spec, withSpec(t, func(s *v1beta1.StorageClusterSpec) { s.Paused = true }).Spec)
}

func TestResources_AreThoseOfHoldfastItself(t *testing.T) {
	want := core.ResourceRequirements{
		Requests: core.ResourceList{core.ResourceCPU: resource.MustParse("200m")},
		Limits:   core.ResourceList{core.ResourceMemory: resource.MustParse("1Gi")},
	}
	in := everything()
	usual := controllerOf(t, in).Spec.Template.Spec
	in.Cluster.Spec.Resources = want
	for _, pod := range podsOf(t, in) {
		for _, c := range pod.Containers {
			if c.Name == "holdfast" {
				same(t, want, c.Resources)
			} else {
				same(t, container(&usual, "csi-resizer").Resources, c.Resources)
			}
		}
	}
}

func TestPods_GetPullSecretsPriorityAndTolerations(t *testing.T) {
	secrets := []core.LocalObjectReference{{Name: "registry"}, {Name: "mirror"}}
	mine := core.Toleration{Key: "node-role.kubernetes.io/control-plane", Operator: core.TolerationOpExists, Effect: core.TaintEffectNoExecute}
	usual, in := everything(), everything()
	in.Cluster.Spec.ImagePullSecrets, in.Cluster.Spec.PriorityClassName, in.Cluster.Spec.Tolerations = secrets, "mine", []core.Toleration{mine}
	pods := func(in Input) map[string]core.PodSpec {
		all := podsOf(t, in)
		return map[string]core.PodSpec{"controller": all[0], "node": all[1], "snapshot-controller": all[2]}
	}
	priorities := map[string]string{
		"controller": "system-cluster-critical", "node": "system-node-critical", "snapshot-controller": "system-cluster-critical",
	}
	for name, pod := range pods(in) {
		before := pods(usual)[name]
		same(t, secrets, pod.ImagePullSecrets)
		if pod.PriorityClassName != "mine" || before.PriorityClassName != priorities[name] {
			t.Errorf("%s: the priority is %s, unasked %s", name, pod.PriorityClassName, before.PriorityClassName)
		}
		// Its own stay, also one with the same key.
		same(t, append(slices.Clone(before.Tolerations), mine), pod.Tolerations)
	}
}

func TestController_ServesTheAPIOnThePortOfTheSpec(t *testing.T) {
	for want, write := range map[string]func(*v1beta1.StorageClusterSpec){
		"5705": nil,
		"8443": func(s *v1beta1.StorageClusterSpec) { s.Service.TargetPort = 8443 },
	} {
		pod := withSpec(t, write).Spec.Template.Spec
		if args := arguments(t, pod, "holdfast"); !slices.Contains(args, "--api-address=:"+want) {
			t.Errorf("its arguments are %v, not those for port %s", args, want)
		}
		ports := map[string]int32{}
		for _, port := range container(&pod, "holdfast").Ports {
			ports[port.Name] = port.ContainerPort
		}
		if got := ports["api"]; resource.NewQuantity(int64(got), resource.DecimalSI).String() != want || ports["metrics"] != 9090 {
			t.Errorf("its ports are %v, not %s", ports, want)
		}
	}
}

func TestController_MatchesTheManifest(t *testing.T) {
	in := Input{Cluster: &v1beta1.StorageCluster{}, Namespace: deploy.Namespace}
	in.Cluster.Name = "holdfast"
	installed, err := deploy.Objects(deploy.Controller)
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, o := range rendered(t, in) {
		for _, want := range installed {
			if o.GetKind() == want.GetKind() && o.GetName() == want.GetName() {
				want.SetNamespace(deploy.Namespace)
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

// settings of the controller's pods alone.
func settings() v1beta1.ControllerSpec {
	return v1beta1.ControllerSpec{
		Affinity:                  &core.Affinity{PodAffinity: &core.PodAffinity{}},
		NodeSelector:              map[string]string{"infra": "yes"},
		Tolerations:               []core.Toleration{{Key: "infra", Operator: core.TolerationOpExists}},
		TopologySpreadConstraints: []core.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: core.DoNotSchedule}},
		PriorityClassName:         "mine",
		PodAnnotations:            map[string]string{"a": "b"},
		PodLabels:                 map[string]string{"c": "d"},
		Resources:                 core.ResourceRequirements{Limits: core.ResourceList{core.ResourceMemory: resource.MustParse("1Gi")}},
		ExtraArgs:                 []string{"--stop-timeout=40s"},
	}
}

func TestController_HasSettingsOfItsOwn(t *testing.T) {
	for _, strategy := range []v1beta1.ControllerKind{v1beta1.AsDeployment, v1beta1.AsStatefulSet} {
		in := everything()
		in.Cluster.Spec.Controller = settings()
		in.Cluster.Spec.Controller.Kind = strategy
		var template core.PodTemplateSpec
		if strategy == v1beta1.AsDeployment {
			template = controllerOf(t, in).Spec.Template
		} else {
			template = must[apps.StatefulSet](t, in, "StatefulSet", "holdfast-controller").Spec.Template
		}
		pod := template.Spec
		main := container(&pod, "holdfast")
		if pod.Affinity == nil || pod.NodeSelector["infra"] != "yes" || pod.NodeSelector["kubernetes.io/os"] != "linux" || pod.PriorityClassName != "mine" ||
			template.Annotations["a"] != "b" || template.Labels["c"] != "d" || pod.Tolerations[len(pod.Tolerations)-1].Key != "infra" ||
			main.Resources.Limits.Memory().String() != "1Gi" || main.Args[len(main.Args)-1] != "--stop-timeout=40s" {
			t.Errorf("%s: the pod is %+v", strategy, template)
		}
		if spread := pod.TopologySpreadConstraints; len(spread) != 1 || spread[0].TopologyKey != "zone" || len(spread[0].MatchLabelKeys) != 0 || spread[0].LabelSelector.MatchLabels["c"] != "" ||
			spread[0].LabelSelector.MatchLabels[v1beta1.ComponentLabel] != "controller" {
			t.Errorf("%s: they spread by %+v", strategy, spread)
		}
		node := nodeOf(t, in).Spec.Template
		if node.Annotations["a"] != "" || node.Labels["c"] != "" || node.Spec.NodeSelector["infra"] != "" || node.Spec.PriorityClassName == "mine" {
			t.Errorf("the pods of nodes have them too: %+v", node)
		}
	}
}

func TestPods_AllPullByThePolicy(t *testing.T) {
	in := everything()
	in.Cluster.Spec.ImagePullPolicy = core.PullAlways
	for _, pod := range podsOf(t, in) {
		for _, c := range append(pod.InitContainers, pod.Containers...) {
			if c.ImagePullPolicy != core.PullAlways {
				t.Errorf("container %s pulls %s", c.Name, c.ImagePullPolicy)
			}
		}
	}
}
