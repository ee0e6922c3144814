package main

import (
	"os"
	"testing"

	"github.com/holdfast-storage/holdfast/test/tool/cluster/host"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == host.Entry {
		_ = host.Become(os.Args[2])
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func newCluster(t *testing.T, base, name string) *Cluster {
	t.Helper()
	c, err := NewCluster(base, name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
