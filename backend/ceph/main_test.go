//go:build ceph

package ceph

import (
	"context"
	"log/slog"
	"os"
	"testing"

	rig "github.com/holdfast-storage/holdfast/test/rig/ceph"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// small is the Ceph of all tests here; nil where none is installed.
var small *rig.Cluster

func TestMain(m *testing.M) { os.Exit(rig.Main(m.Run, rig.Options{}, &small)) }

var silent = slog.New(slog.DiscardHandler)

func configOf(t *testing.T, user string) Config {
	t.Helper()
	rig.Require(t)
	key := check.Got(small.Key(t.Context(), user))(t)
	return Config{Monitors: []string{"v2:" + small.Monitor}, FSID: small.FSID, User: user, Key: Key(key)}
}

func connected(t *testing.T, config Config) *Cluster {
	t.Helper()
	c := check.Got(New(config, silent))(t)
	t.Cleanup(func() {
		check.Report(t, c.Close(context.Background()))
	})
	return c
}
