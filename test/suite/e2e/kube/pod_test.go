package kube

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPod_IsRestrictedAndInItsNamespaceUnlessRequestedOtherwise(t *testing.T) {
	p := NewPod("p", "node1")
	if s := p.Spec.SecurityContext; !*s.RunAsNonRoot || *s.RunAsUser == 0 || s.SeccompProfile == nil {
		t.Errorf("pod %+v", s)
	}
	if s := p.Spec.Containers[0].SecurityContext; *s.AllowPrivilegeEscalation || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
		t.Errorf("container %+v", s)
	}
	if p.Spec.Containers[0].ImagePullPolicy != corev1.PullIfNotPresent || p.Spec.NodeSelector[corev1.LabelHostname] != "node1" {
		t.Errorf("%+v", p.Spec)
	}
	if p := NewPod("p", "node1", OnNode("node2")); p.Spec.NodeSelector[corev1.LabelHostname] != "node2" {
		t.Errorf("on node2: %v", p.Spec.NodeSelector)
	}
	if p := NewPod("p", "node1", AnyNode); len(p.Spec.NodeSelector) != 0 {
		t.Errorf("anywhere: %v", p.Spec.NodeSelector)
	}
}

func TestPod_HasAllItsVolumes(t *testing.T) {
	p := NewPod("p", "node1", Mount("a", "/a"), Device("b", "/dev/b"), Mount("a", "/again"), MountNFS("10.0.0.9", "/docs", "/docs"))
	var claims []string
	for _, volume := range p.Spec.Volumes[:3] {
		claims = append(claims, volume.Name+"="+volume.PersistentVolumeClaim.ClaimName)
	}
	c := p.Spec.Containers[0]
	if !slices.Equal(claims, []string{"volume-0=a", "volume-1=b", "volume-2=a"}) || c.VolumeMounts[1].Name != "volume-2" || c.VolumeDevices[0].Name != "volume-1" {
		t.Errorf("volumes %v, mounts %v, devices %v", claims, c.VolumeMounts, c.VolumeDevices)
	}
	shared := p.Spec.Volumes[3]
	if shared.NFS == nil || shared.NFS.Server != "10.0.0.9" || shared.NFS.Path != "/docs" || c.VolumeMounts[2].Name != shared.Name {
		t.Errorf("of the NFS server there is %+v, mounts %v", shared, c.VolumeMounts)
	}
	if p.Spec.SecurityContext.RunAsUser != nil || p.Spec.SecurityContext.RunAsNonRoot != nil {
		t.Error("a pod with a device must be root's")
	}
}

func TestAwait_OfAPodThatHasEndedEnds(t *testing.T) {
	c, client := imitation(t)
	for _, name := range []string{"failed", "succeeded"} {
		phase := map[string]corev1.PodPhase{"failed": corev1.PodFailed, "succeeded": corev1.PodSucceeded}[name]
		ended := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "test"}, Status: corev1.PodStatus{Phase: phase}}
		if err := client.Tracker().Add(ended); err != nil {
			t.Fatal(err)
		}
	}
	for name, wait := range map[string]func(*Space){
		"failed":    func(s *Space) { s.Result("failed") },
		"succeeded": func(s *Space) { s.Ready("succeeded") },
	} {
		tried := try(t, "TestIt", func(t testing.TB) { wait(&Space{Cluster: c, Namespace: "test", t: t}) })
		if !tried.failed || !strings.Contains(tried.said.String(), "waiting for "+name) {
			t.Errorf("the failure says %q", tried.said.String())
		}
	}
}
