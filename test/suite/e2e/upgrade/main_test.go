// Package upgrade tests what changes a whole cluster: StorageUpgrades, with applications that use volumes during them, and NodeJobs.
// Each test is alone in the cluster and leaves it as it was installed.
package upgrade

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	kinds "github.com/holdfast-storage/holdfast/api/client/clientset/typed/api/v1beta1"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

const (
	// root of the sources.
	root = "../../../.."
	// clusterName is that of the StorageCluster.
	clusterName = "holdfast"
)

var (
	cluster   *kube.Cluster // nil where none is named
	objects   kinds.HoldfastV1beta1Interface
	installed v1beta1.StorageClusterSpec // as the tests find it
	scratch   string                     // for the images of the tests
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	name := os.Getenv(kube.ClusterVariable)
	if name == "" {
		return m.Run()
	}
	end, err := begun(context.Background(), name)
	if err == nil {
		code = m.Run()
	}
	if err := errors.Join(err, end()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// begun waits until no other tests run in the cluster.
func begun(ctx context.Context, name string) (end func() error, err error) {
	end = func() error { return nil }
	if cluster, err = kube.Connect(ctx, name, root+"/test/cluster"); err != nil {
		return end, err
	}
	end = cluster.Close
	if scratch, err = os.MkdirTemp("", "holdfast-e2e-images-"); err != nil {
		return end, err
	}
	end = func() error { return errors.Join(cluster.Close(), os.RemoveAll(scratch)) }
	config, err := clientcmd.BuildConfigFromFlags("", cluster.Kubeconfig())
	if err != nil {
		return end, err
	}
	config.QPS = -1 // the tests do not wait for themselves
	client, err := holdfast.NewForConfig(config)
	if err != nil {
		return end, err
	}
	objects = client.HoldfastV1beta1()
	found, err := objects.StorageClusters().Get(ctx, clusterName, metav1.GetOptions{})
	if err != nil {
		return end, err
	}
	if found.Spec.Paused || found.Spec.Images.Holdfast == "" {
		return end, fmt.Errorf("StorageCluster %s: it must not be paused, and name the image of Holdfast, as test/cluster/install makes it", clusterName)
	}
	installed = found.Spec
	return end, nil
}

// begin gives a test the cluster, which is as it was installed, and makes it so again in the end.
func begin(t *testing.T) *site {
	t.Helper()
	if cluster == nil {
		kube.SkipWithout(t)
	}
	nodes := cluster.Nodes(t)
	if len(nodes) < 2 {
		hostfs.Skip(t, "nodes", fmt.Sprintf("needs a second node that is ready beside %v", nodes))
	}
	s := &site{t: t, Space: cluster.Space(t), nodes: nodes, image: installed.Images.Holdfast}
	t.Cleanup(s.putBack)
	s.awaitImage(s.image)
	return s
}
