package cluster

import (
	"fmt"
	"slices"
	"testing"
	"time"

	core "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// cost is what it took until all nodes were ready.
type cost struct {
	nodes    int
	took     time.Duration
	requests []string // of the operator
}

// What it costs until all is running, with one node and with many.
func TestScale_MoreNodesCostNoMoreRequestsEach(t *testing.T) {
	hostfs.OnlyFigures(t)
	realapi.Config(t)          // or it is skipped
	sizes := []int{20, 1, 200} // the first try of all finds everything cold, and is not the one to compare with
	var all []cost
	for _, nodes := range sizes {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) { all = append(all, install(t, nodes)) })
	}
	if len(all) < len(sizes) {
		t.Fatal("not all sizes could be tried")
	}
	slices.SortFunc(all, func(a, b cost) int { return a.nodes - b.nodes })
	one := all[0]
	for i, run := range all {
		requests := len(run.requests)
		t.Logf("%3d nodes: Running after %.1f times of what one takes (%s), %d requests of the operator, %.1f for each node", run.nodes,
			run.took.Seconds()/one.took.Seconds(), run.took.Round(10*time.Millisecond), requests, float64(requests)/float64(run.nodes))
		if i == 0 {
			continue
		}
		before := all[i-1]
		if more := float64(requests-len(before.requests)) / float64(run.nodes-before.nodes); more > mostForANode {
			t.Errorf("from %d to %d nodes each node more costs %.1f requests, and %.1f are allowed", before.nodes, run.nodes, more, mostForANode)
			t.Logf("of %d nodes: %q", run.nodes, run.requests)
		}
	}
}

// mostForANode is what one more node may cost the operator. All nodes are made by one object, and their states are reported
// together: with many nodes it is a small part of a request.
const mostForANode = 0.5

// install asks for a StorageCluster on so many nodes and waits until it runs.
func install(t *testing.T, nodes int) cost {
	r := newRig(t)
	r.simulate(nodes)
	r.start()
	r.traffic.take()
	began := time.Now()
	r.create("holdfast", func(s *v1beta1.StorageClusterSpec) {
		s.NodeSelectorTerms = terms(simulated, core.NodeSelectorOpExists)
	})
	wait.Until(r, "all nodes being ready", func() bool {
		c := r.cluster("holdfast")
		return c != nil && c.Status.Phase == v1beta1.ClusterRunning && c.Status.ReadyNodes == int32(nodes) && c.Status.DesiredNodes == int32(nodes)
	})
	return cost{nodes: nodes, took: time.Since(began), requests: r.traffic.take()}
}
