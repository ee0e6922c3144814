package kube

import (
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func runningPod(name, node, container string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: System},
		Spec:       corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
			Name: container, ContainerID: "containerd://no-process-has-this-id", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}}},
	}
}

func TestKill_ThatHitsNothingFailsTheTest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, client := imitation(t)
		there := runningPod("holdfast-node-x", "node1", "holdfast")
		check.OK(t, client.Tracker().Add(there))
		tried := try(t, "TestIt", func(t testing.TB) { (&Space{Cluster: c, Home: "node1", t: t}).Kill(there, "holdfast") })
		if !tried.failed || !strings.Contains(tried.said.String(), "holdfast-node-x to run container holdfast with a process to be killed") {
			t.Errorf("the failure says %q", tried.said.String())
		}
	})
}
