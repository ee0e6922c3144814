// Package golden takes volumes through their life in a real cluster of one node, once and in order, from an installation to
// its removal. It is the last lane of make test.
package golden

import (
	"context"
	"fmt"
	"os"
	"testing"

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
	if cluster, err = kube.Connect(context.Background(), name, "../../cluster"); err != nil {
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
