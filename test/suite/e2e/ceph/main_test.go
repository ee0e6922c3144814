// Package ceph tests pools in a Ceph cluster where Holdfast is installed in a real cluster: claims, the pods that use them
// on nodes with the kernel's clients, and what happens when a node or a daemon of Ceph fails. The Ceph is real, small, and
// this package's own.
package ceph

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/ceph"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

var (
	cluster *kube.Cluster // nil where none is named
	storage *ceph.Cluster // nil where Ceph is not installed
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	name := os.Getenv(kube.ClusterVariable)
	if name == "" || ceph.Missing() != "" {
		return m.Run()
	}
	code := 1
	err := within(context.Background(), name, func() { code = m.Run() })
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// within has tests run while there is a Ceph with a pool of each engine.
func within(ctx context.Context, name string, tests func()) (err error) {
	if cluster, err = kube.Connect(ctx, name, "../../../cluster"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Close()) }()
	address, err := cluster.HostAddress(ctx)
	if err != nil {
		return err
	}
	if storage, err = ceph.Run(ctx, ceph.Options{Address: address, MDS: true, Log: io.Discard}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, storage.Stop()) }()
	defer func() { err = errors.Join(err, removePools(context.WithoutCancel(ctx))) }()
	if err := addPools(ctx); err != nil {
		return err
	}
	tests()
	return nil
}

// begin gives a test its namespace, where there are a cluster and a Ceph.
func begin(t testing.TB) *kube.Space {
	t.Helper()
	ceph.Require(t)
	if cluster == nil {
		kube.SkipWithout(t)
	}
	return cluster.Space(t)
}

// withClients are two nodes with a kernel of their own, which has the clients of Ceph.
func withClients(t testing.TB) (one, other string) {
	t.Helper()
	nodes := cluster.Nodes(t)
	if len(nodes) < 3 {
		hostfs.Skip(t, "third-node", fmt.Sprintf("needs two nodes whose kernel has the clients of Ceph, beside that of this machine: there are %d nodes", len(nodes)))
	}
	return nodes[1], nodes[2]
}
