//go:build ceph

package ceph

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"

	rig "github.com/holdfast-storage/holdfast/test/rig/ceph"
)

// small is the Ceph of all tests here; nil where none is installed.
var small *rig.Cluster

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if rig.Missing() == "" {
		var err error
		if small, err = rig.Run(context.Background(), rig.Options{}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = small.Stop() }() // what is left is removed by its keeper
	}
	return m.Run()
}

var silent = slog.New(slog.DiscardHandler)

func configOf(t *testing.T, user string) Config {
	t.Helper()
	rig.Require(t)
	key, err := small.Key(t.Context(), user)
	if err != nil {
		t.Fatal(err)
	}
	return Config{Monitors: []string{"v2:" + small.Monitor}, FSID: small.FSID, User: user, Key: Key(key)}
}

func connected(t *testing.T, config Config) *Cluster {
	t.Helper()
	c, err := New(config, silent)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}
