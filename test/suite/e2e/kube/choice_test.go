package kube

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestChoose_TwoNamesAreRefusedWithBoth(t *testing.T) {
	t.Setenv(ClusterVariable, "e2e")
	t.Setenv(KubeconfigVariable, "/tmp/kind")
	_, err := Choose(t.Context(), t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "HOLDFAST_CLUSTER=e2e and HOLDFAST_KUBECONFIG=/tmp/kind are both set") {
		t.Errorf("error %v", err)
	}
}

func TestGivenCluster_SkipsWhatNeedsItsMachinesAndSaysWhat(t *testing.T) {
	t.Setenv("HOLDFAST_REQUIRE", "cluster")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	for what, do := range map[string]func(*Space){
		"cut the power":   func(s *Space) { s.CutPower("node2") },
		"was deleted":     func(s *Space) { s.DeleteNode("node2") },
		"restart kubelet": func(s *Space) { s.Restart("kubelet") },
		"suspend etcd":    func(s *Space) { s.Suspend("etcd") },
		"processes":       func(s *Space) { s.Processes(pod, "x") },
		"network":         func(s *Space) { s.CutPort("p", 1) },
		"pools":           func(s *Space) { s.Pools() },
	} {
		t.Run(what, func(t *testing.T) {
			c := &Cluster{Name: "/tmp/kind", given: true}
			tried := try(t, "TestIt", func(t testing.TB) { do(&Space{Cluster: c, t: t}) })
			if !tried.skipped || tried.failed || !strings.Contains(tried.said.String(), what) || !strings.Contains(tried.said.String(), "/tmp/kind") {
				t.Errorf("skipped %v, failed %v, said %q", tried.skipped, tried.failed, tried.said.String())
			}
		})
	}
}

func TestGivenCluster_WhatIsRequiredFails(t *testing.T) {
	t.Setenv("HOLDFAST_REQUIRE", "machines")
	c := &Cluster{Name: "/tmp/kind", given: true}
	if tried := try(t, "TestIt", func(t testing.TB) { (&Space{Cluster: c, t: t}).CutPower("node2") }); !tried.failed || tried.skipped {
		t.Errorf("skipped %v, said %q", tried.skipped, tried.said.String())
	}
}
