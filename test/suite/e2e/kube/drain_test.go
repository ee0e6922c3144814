package kube

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

func TestDrain_EvictsAllButDaemonSetPodsAndCordons(t *testing.T) {
	c, client := imitation(t)
	for name, owner := range map[string]string{"alone": "", "replica": "ReplicaSet", "agent": "DaemonSet"} {
		p := pod(name, corev1.PodRunning)
		p.Spec.NodeName = "node1"
		if owner != "" {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: owner, Controller: new(true)}}
		}
		if err := client.Tracker().Add(p); err != nil {
			t.Fatal(err)
		}
	}
	var evicted []string
	refusals := 1 // as by a disruption budget
	client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		if refusals--; refusals >= 0 {
			return true, nil, apierrors.NewTooManyRequests("one is enough", 0)
		}
		evicted = append(evicted, action.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction).Name)
		return true, nil, nil
	})
	unschedulable := func() bool {
		n, err := client.CoreV1().Nodes().Get(t.Context(), "node1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return n.Spec.Unschedulable
	}
	drained := try(t, "TestIt", func(t testing.TB) {
		(&Space{Cluster: c, Namespace: "test", t: t}).Drain("node1")
		if !unschedulable() {
			t.Error("new pods may come")
		}
	})
	slices.Sort(evicted)
	if drained.failed || !slices.Equal(evicted, []string{"alone", "replica"}) {
		t.Errorf("evicted are %v; the failure says %q", evicted, drained.said.String())
	}
	if unschedulable() {
		t.Error("after the test no pod may come")
	}
}
