package operator

import (
	"context"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// templates are the pods that Holdfast consists of.
func (a *admin) templates() (node, controller corev1.PodSpec) {
	a.t.Helper()
	set, err := a.Client.AppsV1().DaemonSets(kube.System).Get(a.t.Context(), "holdfast-node", metav1.GetOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	deployment, err := a.Client.AppsV1().Deployments(kube.System).Get(a.t.Context(), "holdfast-controller", metav1.GetOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	return set.Spec.Template.Spec, deployment.Spec.Template.Spec
}

// podField is a field that only shows in the pods.
type podField struct {
	name  string
	set   func(*v1beta1.StorageClusterSpec)
	shows func(*corev1.PodSpec) bool // in each pod of Holdfast
}

func podFields() []podField {
	toleration := corev1.Toleration{Key: "e2e.holdfast.dev/taint", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
	limits := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("777Mi")}
	return []podField{
		{
			"tolerations", func(s *v1beta1.StorageClusterSpec) { s.Tolerations = []corev1.Toleration{toleration} },
			func(p *corev1.PodSpec) bool { return slices.Contains(p.Tolerations, toleration) },
		},
		{
			"resources", func(s *v1beta1.StorageClusterSpec) { s.Resources.Limits = limits },
			func(p *corev1.PodSpec) bool {
				return own(p).Resources.Limits.Memory().Equal(limits[corev1.ResourceMemory])
			},
		},
		{
			"priorityClassName", func(s *v1beta1.StorageClusterSpec) { s.PriorityClassName = "e2e-priority" },
			func(p *corev1.PodSpec) bool {
				return p.PriorityClassName == "e2e-priority" && (p.Priority == nil || *p.Priority == 1234)
			},
		},
		{
			"imagePullSecrets", func(s *v1beta1.StorageClusterSpec) {
				s.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "e2e-registry"}}
			},
			func(p *corev1.PodSpec) bool {
				return slices.Contains(p.ImagePullSecrets, corev1.LocalObjectReference{Name: "e2e-registry"})
			},
		},
	}
}

// own is the container of Holdfast itself.
func own(p *corev1.PodSpec) *corev1.Container {
	for i := range p.Containers {
		if p.Containers[i].Name == "holdfast" {
			return &p.Containers[i]
		}
	}
	return &corev1.Container{}
}

func TestFields_EachOfThePodsReachesRunningPodsAndLeavesThem(t *testing.T) {
	hostfs.Long(t)
	a := administer(t)
	priorities := a.Client.SchedulingV1().PriorityClasses()
	if _, err := priorities.Create(t.Context(), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "e2e-priority"}, Value: 1234}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		a.change(asUsual)
		if err := priorities.Delete(context.WithoutCancel(t.Context()), "e2e-priority", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		a.expectFields(false)
	}()
	a.expectFields(false)
	a.change(func(spec *v1beta1.StorageClusterSpec) { // one rollout for all of them
		for _, field := range podFields() {
			field.set(spec)
		}
	})
	a.expectFields(true)
}

func (a *admin) expectFields(want bool) {
	a.t.Helper()
	for _, component := range []string{"node", "controller"} {
		pods := a.pods(component)
		if len(pods) == 0 {
			a.t.Errorf("component %s has no pods", component)
		}
		for _, field := range podFields() {
			for name, pod := range pods {
				if field.shows(&pod.Spec) != want {
					a.t.Errorf("%s: in pod %s it shows: %t, want %t", field.name, name, !want, want)
				}
			}
		}
	}
}

func TestDistribution_GetsItsSettings(t *testing.T) {
	hostfs.Long(t)
	a := administer(t)
	roles := a.Client.RbacV1().Roles(kube.System)
	a.change(func(spec *v1beta1.StorageClusterSpec) { spec.Distribution = "openshift-4.20" })
	kube.AwaitOne(a.Space, roles, "holdfast-node-scc", "to be made", func(r *rbacv1.Role) (bool, error) {
		return len(r.Rules) == 1 && slices.Contains(r.Rules[0].ResourceNames, "privileged"), nil
	})
	a.change(func(spec *v1beta1.StorageClusterSpec) { spec.Distribution = "" })
	kube.AwaitNone(a.Space, roles, kube.Named("holdfast-node-scc"), "the role of another distribution")

	a.ask(func(spec *v1beta1.StorageClusterSpec) { spec.Distribution = "plan9" })
	a.await("to say which distributions are known", func(c *v1beta1.StorageCluster) bool {
		return says(c, v1beta1.ProgressingCondition, "InvalidSpec", "spec.distribution", "plan9", "talos")
	})
}

func TestSidecars_OfTheNodeRunWithAnImageAndFindTheKubeletDirectory(t *testing.T) {
	hostfs.Long(t)
	a := administer(t)
	node, _ := a.templates()
	dir := usual.CSI.KubeletDir
	if dir == "" {
		dir = "/var/lib/kubelet"
	}
	found := false
	for _, volume := range node.Volumes {
		found = found || volume.HostPath != nil && volume.HostPath.Path == dir
	}
	if !found || !slices.Contains(own(&node).Args, "--endpoint=unix://"+dir+"/plugins/csi.holdfast.dev/csi.sock") {
		t.Errorf("csi.kubeletDir %s is not in %+v", dir, node)
	}
	// A container that idles stands for the image, which test clusters do not have.
	a.ask(func(spec *v1beta1.StorageClusterSpec) { spec.Images.CSILivenessProbe = "busybox:1" })
	sets := a.Client.AppsV1().DaemonSets(kube.System)
	kube.AwaitOne(a.Space, sets, "holdfast-node", "to have the sidecar", func(d *appsv1.DaemonSet) (bool, error) {
		containers := d.Spec.Template.Spec.Containers
		return len(containers) == 2 && containers[1].Name == "livenessprobe" && containers[1].Image == "busybox:1", nil
	})
	a.change(func(spec *v1beta1.StorageClusterSpec) { spec.Images.CSILivenessProbe = "" })
	if node, _ := a.templates(); len(node.Containers) != 1 {
		t.Errorf("the sidecar stays: %+v", node.Containers)
	}
}
