// Package e2e tests Holdfast where it is installed in a real cluster, through what its users do: claims and pods.
package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/holdfast-storage/holdfast/test/e2e/kube"
	"github.com/holdfast-storage/holdfast/test/hostfs"
)

// clusterVariable names the cluster of test/cluster that the tests run in.
const clusterVariable = "HOLDFAST_CLUSTER"

// cluster is nil where no cluster is named.
var cluster *kube.Cluster

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	name := os.Getenv(clusterVariable)
	if name == "" {
		return m.Run()
	}
	var err error
	if cluster, err = kube.Connect(context.Background(), name, "../cluster"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	manyAtOnce()
	code := m.Run()
	if err := cluster.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// manyAtOnce runs more tests in parallel than there are processors, unless the caller says how many: they wait for
// the cluster most of the time.
func manyAtOnce() {
	flag.Parse()
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == "test.parallel" })
	if !said {
		_ = flag.Set("test.parallel", "12") // it is a number
	}
}

// begin gives a test its namespace, where there is a cluster.
func begin(t *testing.T) *kube.Space {
	t.Helper()
	if cluster == nil {
		hostfs.Skip(t, "cluster", "needs a cluster with Holdfast in it, named in "+clusterVariable+": run make e2e")
	}
	t.Cleanup(func() { power.leave(t) }) // after the end of the namespace
	return cluster.Space(t)
}
