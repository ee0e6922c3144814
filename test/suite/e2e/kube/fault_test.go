package kube

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func runningPod(name, node, container string) *corev1.Pod {
	p := pod(name, corev1.PodRunning)
	p.Namespace, p.Spec.NodeName = System, node
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: container, ContainerID: "containerd://no-process-has-this-id", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}
	return p
}

func TestKill_ThatHitsNothingFailsTheTest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, client := imitation(t)
		there := runningPod("holdfast-node-x", "node1", "holdfast")
		if err := client.Tracker().Add(there); err != nil {
			t.Fatal(err)
		}
		tried := try(t, "TestIt", func(t testing.TB) { (&Space{Cluster: c, Home: "node1", t: t}).Kill(there, "holdfast") })
		if !tried.failed || !strings.Contains(tried.said.String(), "holdfast-node-x to run container holdfast with a process to be killed") {
			t.Errorf("the failure says %q", tried.said.String())
		}
	})
}

func TestLeader_IsTheHolderOfTheLease(t *testing.T) {
	c, client := imitation(t)
	for _, name := range []string{"dead", "alive"} {
		if err := client.Tracker().Add(runningPod(name, "node1", "holdfast")); err != nil {
			t.Fatal(err)
		}
	}
	lease := func(holder string, renewed time.Time) *coordinationv1.Lease {
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "lease", Namespace: System},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &metav1.MicroTime{Time: renewed}},
		}
	}
	leases := client.CoordinationV1().Leases(System)
	if _, err := leases.Create(t.Context(), lease("dead", time.Now().Add(-time.Second)), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	tried := try(t, "TestIt", func(t testing.TB) {
		go func() {
			if _, err := leases.Update(t.Context(), lease("alive", time.Now().Add(time.Second)), metav1.UpdateOptions{}); err != nil {
				t.Error(err)
			}
		}()
		if found := (&Space{Cluster: c, t: t}).Leader("lease"); found.Name != "alive" {
			t.Errorf("it is %s", found.Name)
		}
	})
	if tried.failed {
		t.Error(tried.said.String())
	}
}
