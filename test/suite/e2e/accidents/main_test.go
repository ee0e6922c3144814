// Package accidents does what an administrator does by mistake, in a real cluster, and checks that nothing is lost: the
// checksums of all that was written before are the same afterwards, and what is claimed can be used. Each test is alone in
// the cluster and leaves it as it was installed.
package accidents

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	kinds "github.com/holdfast-storage/holdfast/api/client/clientset/typed/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

const (
	// root of the sources.
	root = "../../../.."
	// clusterName is that of the StorageCluster.
	clusterName = "holdfast"
)

var (
	cluster *kube.Cluster // nil where none is named
	objects kinds.HoldfastV1beta1Interface
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	name := os.Getenv(kube.ClusterVariable)
	if name == "" {
		return m.Run()
	}
	if err := connect(context.Background(), name); err != nil {
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

func connect(ctx context.Context, name string) error {
	var err error
	if cluster, err = kube.Connect(ctx, name, root+"/test/cluster"); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", cluster.Kubeconfig())
	if err != nil {
		return errors.Join(err, cluster.Close())
	}
	config.QPS = -1 // the tests do not wait for themselves
	client, err := holdfast.NewForConfig(config)
	if err != nil {
		return errors.Join(err, cluster.Close())
	}
	objects = client.HoldfastV1beta1()
	return nil
}

// begin gives a test its namespace, where there is a cluster.
func begin(t *testing.T) *kube.Space {
	t.Helper()
	if cluster == nil {
		kube.SkipWithout(t)
	}
	return cluster.Space(t)
}
