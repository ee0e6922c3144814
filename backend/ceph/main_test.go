//go:build ceph

package ceph

import (
	"context"
	"log/slog"
	"os"
	"testing"

	rig "github.com/holdfast-storage/holdfast/test/rig/ceph"
)

// small is the Ceph of all tests here; nil where none is installed.
var small *rig.Cluster

func TestMain(m *testing.M) { os.Exit(rig.Main(m.Run, rig.Options{}, &small)) }

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
