package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

// The environment names the cluster that tests run in, by one of these.
const (
	// ClusterVariable has the name of a cluster of test/cluster.
	ClusterVariable = "HOLDFAST_CLUSTER"
	// KubeconfigVariable has the path of a kubeconfig, whose current context is a cluster with Holdfast in it. Its
	// machines are out of reach of the tests.
	KubeconfigVariable = "HOLDFAST_KUBECONFIG"
)

// machines is what a cluster may lack that test/cluster has not made, as HOLDFAST_REQUIRE names it: control over their power,
// processes, networks and disks.
const machines = "machines"

// Choose connects to the cluster that the environment names, and returns nil where it names none. The source is that of
// the program that runs clusters.
func Choose(ctx context.Context, source string) (*Cluster, error) {
	name, kubeconfig := os.Getenv(ClusterVariable), os.Getenv(KubeconfigVariable)
	switch {
	case name != "" && kubeconfig != "":
		return nil, fmt.Errorf("%s=%s and %s=%s are both set; unset one of them", ClusterVariable, name, KubeconfigVariable, kubeconfig)
	case kubeconfig != "":
		return ConnectTo(ctx, kubeconfig)
	case name != "":
		return Connect(ctx, name, source)
	}
	return nil, nil //nolint:nilnil // as it says
}

// ConnectTo finds a cluster by its kubeconfig. Holdfast must be installed there. Close must be called in the end.
func ConnectTo(ctx context.Context, kubeconfig string) (*Cluster, error) {
	path, err := filepath.Abs(kubeconfig)
	if err != nil {
		return nil, err
	}
	c := newCluster(path)
	c.given = true
	if err := c.connectTo(ctx, path); err != nil {
		return nil, errors.Join(fmt.Errorf("cluster of %s: %w", path, err), c.release())
	}
	return c, nil
}

func (c *Cluster) connectTo(ctx context.Context, kubeconfig string) error {
	lock, err := os.Open(kubeconfig) // it may be read only, and no other file is sure to be the same for all runs
	if err != nil {
		return err
	}
	if err := c.takeTurn(lock, os.Stderr); err != nil {
		return err
	}
	if err := c.clients(kubeconfig); err != nil {
		return err
	}
	all, err := c.Holdfast("storageclusters").List(ctx, metav1.ListOptions{Limit: 1})
	if err == nil && len(all.Items) == 0 {
		err = errors.New("there is no StorageCluster")
	}
	if err != nil {
		return fmt.Errorf("install Holdfast first, as docs/install.md says: %w", err)
	}
	return nil
}

// SkipWithout skips a test of a package that changes the whole installation, which it does in clusters of test/cluster
// alone. It is for the case that none of them is named.
func SkipWithout(t testing.TB) {
	t.Helper()
	if file := os.Getenv(KubeconfigVariable); file != "" {
		hostfs.Skip(t, machines, fmt.Sprintf("changes the whole installation, which is done in a cluster of test/cluster alone (%s), and not in that of %s", ClusterVariable, file))
	}
	hostfs.Skip(t, "cluster", fmt.Sprintf("needs a cluster with Holdfast in it, named in %s: run make e2e", ClusterVariable))
}

// NeedMachines skips a test that does something to the machines of a cluster, where they are out of reach of the tests.
func (s *Space) NeedMachines(what string) {
	s.t.Helper()
	if s.given {
		hostfs.Skip(s.t, machines, fmt.Sprintf("needs control over the machines of the cluster, %s: it runs in a cluster of test/cluster (%s), not in that of %s", what, ClusterVariable, s.Name))
	}
}
