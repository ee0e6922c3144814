package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-storage/holdfast/agent"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/backendtest"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
)

// TestMemory_ClusterOfOneHostConforms runs the suite over controller, API and agent together.
func TestMemory_ClusterOfOneHostConforms(t *testing.T) {
	backendtest.Suite{Open: func(t *testing.T, size int64) *backendtest.Fixture {
		w := newWorld(t)
		memory := backendtest.NewMemorySized(size)
		return w.fixture(memory, func() agent.Storage { return memory }, &backendtest.Fixture{
			Write:    func(_ *testing.T, v *backend.Volume, content []byte) { memory.Write(v.ID, content) },
			Read:     func(_ *testing.T, v *backend.Volume, length int) []byte { return memory.Read(v.ID, length) },
			Mode:     backend.Filesystem,
			Smallest: 16 * mib,
		})
	}}.Run(t)
}

// fixture puts a cluster in front of a host. Reopening it restarts controller, agent and host.
func (w *world) fixture(first agent.Storage, reopen func() agent.Storage, f *backendtest.Fixture) *backendtest.Fixture {
	w.Lease = 10 * time.Minute // the suite asks for more at once than a busy machine does in the default
	w.Agent(node, first)
	w.Start()
	w.Ready(node)
	f.Backend = reported{w.Backend, first}
	f.Reopen = func(*testing.T) backend.Storage {
		w.Agents[node]()
		w.Stop()
		host := reopen()
		w.Agent(node, host)
		w.Start()
		w.Ready(node)
		return reported{w.Backend, host}
	}
	return f
}

// reported is the backend with a Capacity that waits until the agent's report has come: it is the one thing that a
// cluster knows a moment later than its host.
type reported struct {
	backend.Storage
	host backend.Backend
}

func (r reported) Capacity(ctx context.Context, pool string) (backend.Capacity, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var want, have backend.Capacity
	var err error
	late := realapi.Until(ctx, func() bool {
		if want, err = r.host.Capacity(ctx, pool); err != nil {
			return true
		}
		have, err = r.Storage.Capacity(ctx, pool)
		return err == nil && have.Promised == want.Promised && have.Total == want.Total
	})
	if late != nil {
		return have, fmt.Errorf("the cluster knows of %+v, the host has %+v: %w", have, want, errors.Join(err, late))
	}
	return have, err
}
