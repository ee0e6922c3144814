// Package operator tests the StorageCluster of a real cluster: what its fields do, how it is removed and
// installed again. There is one StorageCluster, so its tests run one after the other, and apart from all others.
package operator

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// cluster is nil where no cluster is named.
var cluster *kube.Cluster

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	name := os.Getenv(kube.ClusterVariable)
	if name == "" {
		return m.Run()
	}
	var err error
	if cluster, err = kube.Connect(context.Background(), name, "../../../cluster"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := cluster.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// begin gives a test its namespace, where there is a cluster.
func begin(t *testing.T) *kube.Space {
	t.Helper()
	if cluster == nil {
		kube.SkipWithout(t)
	}
	return cluster.Space(t)
}

// twoNodes returns the names of two nodes that are ready, the home of pods first.
func twoNodes(t *testing.T) (home, other string) {
	t.Helper()
	nodes := cluster.Nodes(t)
	if len(nodes) < 2 {
		hostfs.Skip(t, "nodes", fmt.Sprintf("needs a second node that is ready beside %v", nodes))
	}
	return nodes[0], nodes[1]
}

// use makes a claim and a pod that has written to it and still uses it.
func use(s *kube.Space, name string, options ...kube.PodOption) {
	s.Claim(name, "16Mi")
	s.Pod(name, append(options, kube.Mount(name, "/data"), kube.Script("touch /data/file; sleep infinity"))...)
	s.Ready(name)
}
