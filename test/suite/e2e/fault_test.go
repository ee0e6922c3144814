package e2e

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

func TestFaults_NothingIsLostOrLeftWhileFiftyClaimsComeAndGo(t *testing.T) {
	hostfs.Long(t)
	s := begin(t) // not in parallel: others would not like it
	node := secondNode(t)
	all := churners{}
	for _, at := range []string{s.Home, node} {
		there := class(t, s, atOnce, onlyOn(at))
		all.add(s, at, there, "left", 16, nil)
		all.add(s, at, there, "grown", 3, func(c *churner) func(context.Context, string) error { return c.grow })
		all.add(s, at, there, "copied", 3, func(c *churner) func(context.Context, string) error { return c.snapshot })
		all.add(s, at, there, "written", 3, func(c *churner) func(context.Context, string) error { return c.write })
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	end := all.start(ctx)
	defer func() { _ = end() }() // of a test that has failed

	// Each fault while claims come and go; the next only when they all do again.
	all.again(ctx, t, "at the beginning", s.Home, node)
	leads := func() *corev1.Pod { return s.Leader("holdfast-controller") } // whose sidecars are at work
	s.Kill(leads(), "holdfast")
	all.again(ctx, t, "after a kill of the controller", s.Home, node)
	for _, at := range []string{s.Home, node} {
		s.Kill(s.NodePod(at, ""), "holdfast")
	}
	all.again(ctx, t, "after a kill of the node pods", s.Home, node)
	for _, sidecar := range []string{"csi-provisioner", "csi-resizer", "csi-snapshotter"} {
		s.Kill(leads(), sidecar)
	}
	s.Kill(s.Leader("snapshot-controller-leader"), "snapshot-controller")
	all.again(ctx, t, "after a kill of the sidecars", s.Home, node)
	for _, component := range []string{"etcd", "kube-apiserver"} {
		s.Restart(component)
		all.again(ctx, t, "after a restart of "+component, s.Home, node)
	}
	boot := s.CutPower(node)
	all.again(ctx, t, "without "+node, s.Home)
	boot()
	all.again(ctx, t, "after a power cut of "+node, s.Home, node)
	check.Report(t, end())
	t.Logf("%d claims came and went", len(all.volumes()))
	nothingLeft(t, s, all.volumes())
}
