package volume_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/holdfast-storage/holdfast/operator/volume"
	"github.com/holdfast-storage/holdfast/test/rig/alongside"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/inmemory"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

// world is a cluster whose volume controller is tested.
type world struct {
	*inmemory.Cluster
	change func(*volume.Config)
}

func newWorld(t *testing.T) *world { return &world{Cluster: inmemory.New(t)} }
func inBubble(t *testing.T, test func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) { test(t, newWorld(t)) })
}

func realWorld(t *testing.T) *world { return &world{Cluster: inmemory.Real(t)} }

// started starts the backend.
func (w *world) started() *world {
	w.Start()
	return w
}

// leads makes the controller lead too, until the test ends.
func (w *world) leads() *world {
	w.Helper()
	config := volume.Config{Storage: w.Backend, Events: w.Events}
	if w.change != nil {
		w.change(&config)
	}
	c := check.Got(volume.New(config))(w)
	ctx, cancel := context.WithCancel(context.Background())
	stopServing, stopLeading := w.Stop, alongside.Run(ctx, w, cancel, c.Run)
	w.Stop = func() { stopLeading(); stopServing() }
	return w
}
