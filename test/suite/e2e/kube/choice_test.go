package kube

import "testing"

func TestGivenCluster_WhatIsRequiredFails(t *testing.T) {
	t.Setenv("HOLDFAST_REQUIRE", "machines")
	c := &Cluster{Name: "/tmp/kind", given: true}
	if tried := try(t, "TestIt", func(t testing.TB) { (&Space{Cluster: c, t: t}).CutPower("node2") }); !tried.failed || tried.skipped {
		t.Errorf("skipped %v, said %q", tried.skipped, tried.said.String())
	}
}
