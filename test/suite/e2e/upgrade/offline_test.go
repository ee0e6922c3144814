package upgrade

import (
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

func TestOfflineUpgrade_StopsUsersOfVolumesAndStartsThemAgain(t *testing.T) {
	hostfs.Long(t)
	s := begin(t)
	earlier := s.earlier()
	a := s.startApplications()
	before := s.nodePods()
	u := s.upgrade("offline", v1beta1.StorageUpgradeSpec{Image: earlier, Strategy: v1beta1.OfflineUpgrade})
	s.followTo(u.Name, v1beta1.StepNodes)
	a.expectStopped()
	u = s.completes(u.Name, offlineSteps, s.image, earlier)
	a.expectRunningAgain()
	pods := check.Got(s.podsOf(t.Context(), "node"))(t)
	begun := stepOf(u, v1beta1.StepNodes).StartTime
	for _, p := range pods {
		if p.UID == before[p.Spec.NodeName] {
			t.Errorf("node %s has its old pod", p.Spec.NodeName)
		}
		if p.CreationTimestamp.Before(&begun) {
			t.Errorf("the pod of node %s was made at %s, and the pods that use volumes were gone at %s", p.Spec.NodeName, p.CreationTimestamp, begun)
		}
	}
}

// applications use volumes, each in its own way.
type applications struct {
	*site
	set, deployment string
}

const replicas = 2 // of the StatefulSet

func (s *site) startApplications() *applications {
	s.t.Helper()
	a := &applications{site: s, set: "several", deployment: s.deploy("one")}
	sets := s.Client.AppsV1().StatefulSets(s.Namespace)
	labels := map[string]string{"app": a.set}
	check.Got(sets.Create(s.t.Context(), &apps.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: a.set},
		Spec: apps.StatefulSetSpec{
			Replicas: new(int32(replicas)), ServiceName: a.set, PodManagementPolicy: apps.ParallelPodManagement,
			Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template(labels, ""),
			VolumeClaimTemplates: []core.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "data"},
				Spec: core.PersistentVolumeClaimSpec{
					AccessModes: []core.PersistentVolumeAccessMode{core.ReadWriteOnce},
					Resources:   core.VolumeResourceRequirements{Requests: core.ResourceList{core.ResourceStorage: resource.MustParse("32Mi")}},
				},
			}},
		},
	}, metav1.CreateOptions{}))(s.t)
	s.t.Cleanup(func() { // or its pods come back
		check.Report(s.t, sets.Delete(withoutEnd(s.t), a.set, metav1.DeleteOptions{}))
	})
	a.await(replicas + 1)
	return a
}

// deploy makes a Deployment of one pod with a claim, and waits for it.
func (s *site) deploy(name string) string {
	s.t.Helper()
	s.Claim(name, "32Mi")
	deployments := s.Client.AppsV1().Deployments(s.Namespace)
	labels := map[string]string{"app": name}
	check.Got(deployments.Create(s.t.Context(), &apps.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       apps.DeploymentSpec{Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template(labels, name)},
	}, metav1.CreateOptions{}))(s.t)
	s.t.Cleanup(func() {
		check.Report(s.t, deployments.Delete(withoutEnd(s.t), name, metav1.DeleteOptions{}))
	})
	kube.AwaitOne(s.Space, deployments, name, "to be available", func(d *apps.Deployment) (bool, error) { return d.Status.AvailableReplicas == 1, nil })
	return name
}

// template is a pod that writes a line into its volume each time it is started. Without a claim the volume is that of a
// claim template.
func template(labels map[string]string, claim string) core.PodTemplateSpec {
	t := core.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: core.PodSpec{
		TerminationGracePeriodSeconds: new(int64(2)), AutomountServiceAccountToken: new(bool),
		Containers: []core.Container{{
			Name: "main", Image: "busybox:1", ImagePullPolicy: core.PullIfNotPresent,
			Command:        []string{"sh", "-ec", "echo started >>/data/log; sync; sleep infinity"},
			ReadinessProbe: &core.Probe{ProbeHandler: core.ProbeHandler{Exec: &core.ExecAction{Command: []string{"test", "-s", "/data/log"}}}, PeriodSeconds: 1},
			VolumeMounts:   []core.VolumeMount{{Name: "data", MountPath: "/data"}},
		}},
	}}
	if claim != "" {
		t.Spec.Volumes = []core.Volume{{Name: "data", VolumeSource: core.VolumeSource{
			PersistentVolumeClaim: &core.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}}}
	}
	return t
}

// await waits for so many pods that are ready, and no others.
func (a *applications) await(count int) []*core.Pod {
	a.t.Helper()
	return kube.Await(a.Space, a.Client.CoreV1().Pods(a.Namespace), metav1.ListOptions{LabelSelector: "app"}, "the pods of the applications", func(pods []*core.Pod) (bool, error) {
		for _, p := range pods {
			if !works(p) {
				return false, nil
			}
		}
		return len(pods) == count, nil
	})
}

// scale is how many replicas the applications have, and had before an upgrade.
func (a *applications) scale() (set, deployment int32, before []string) {
	a.t.Helper()
	s := check.Got(a.Client.AppsV1().StatefulSets(a.Namespace).Get(a.t.Context(), a.set, metav1.GetOptions{}))(a.t)
	d := check.Got(a.Client.AppsV1().Deployments(a.Namespace).Get(a.t.Context(), a.deployment, metav1.GetOptions{}))(a.t)
	return *s.Spec.Replicas, *d.Spec.Replicas, []string{s.Annotations[v1beta1.ReplicasAnnotation], d.Annotations[v1beta1.ReplicasAnnotation]}
}

// expectStopped sees that there is no pod and that it is known how many there were.
func (a *applications) expectStopped() {
	a.t.Helper()
	pods := check.Got(a.Client.CoreV1().Pods(a.Namespace).List(a.t.Context(), metav1.ListOptions{}))(a.t)
	for _, p := range pods.Items {
		a.t.Errorf("pod %s is there while nodes are upgraded", p.Name)
	}
	if set, deployment, before := a.scale(); set != 0 || deployment != 0 || strings.Join(before, " ") != "2 1" {
		a.t.Errorf("the StatefulSet has %d replicas and the Deployment %d, and before they had %q", set, deployment, before)
	}
}

// expectRunningAgain sees that all pods are back with what they wrote before.
func (a *applications) expectRunningAgain() {
	a.t.Helper()
	for _, p := range a.await(replicas + 1) {
		if log := a.Exec(p.Name, "cat", "/data/log"); log != "started\nstarted\n" {
			a.t.Errorf("pod %s finds %q in its volume", p.Name, log)
		}
	}
	if set, deployment, before := a.scale(); set != replicas || deployment != 1 || strings.Join(before, "") != "" {
		a.t.Errorf("the StatefulSet has %d replicas and the Deployment %d, with annotations %q", set, deployment, before)
	}
}
