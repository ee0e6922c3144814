// Package e2e tests Holdfast where it is installed in a real cluster, through what its users do: claims and pods.
package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// cluster is nil where no cluster is named.
var cluster *kube.Cluster

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if cluster, err = kube.Choose(context.Background(), "../../cluster"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if cluster == nil {
		return m.Run()
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
		kube.SkipWithout(t)
	}
	t.Cleanup(func() { power.leave(t) }) // after the end of the namespace
	return cluster.Space(t)
}
