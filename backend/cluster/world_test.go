package cluster_test

import (
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/inmemory"
)

const (
	mib  = 1 << 20
	gib  = 1 << 30
	node = "node-a"
)

// world is a cluster whose backend is tested.
type world struct{ *inmemory.Cluster }

func newWorld(t *testing.T) *world  { return &world{inmemory.New(t)} }
func realWorld(t *testing.T) *world { return &world{inmemory.Real(t)} }

// started starts the backend.
func (w *world) started() *world {
	w.Start()
	return w
}
