//go:build linux && !client

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/holdfast-storage/holdfast/agent"
	"github.com/holdfast-storage/holdfast/agent/policy"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/local"
)

// openPool opens the pool of the server. An expected pool that is missing, because the claim is another one, is not
// created again: it is out of reach.
func (n *nfs) openPool(ctx context.Context, c *clients, log *slog.Logger) *local.Backend {
	dir := n.poolDir()
	remembered := agent.RecallSoon(ctx, c.holdfast, n.node(), n.namespace, log)
	site := local.Site{PoolConfig: local.PoolConfig{Name: nfsPool, Engine: n.engine, Path: dir, Expect: remembered.Pool(nfsPool, dir)}}
	site.Reach = func(_ context.Context, e backend.PoolExpectation) error {
		if !e.MayBegin() {
			return nil
		}
		return os.MkdirAll(dir, 0o700)
	}
	return local.OpenReachable(ctx, []local.Site{site}, log)
}

func (n *nfs) poolDir() string { return filepath.Join(n.data, "pool") }

// agent reconciles the volumes of the server. The part is its policy guard.
func (n *nfs) agent(storage agent.Storage, c *clients, log *slog.Logger) (*agent.Agent, part, error) {
	requests := policy.Requests(c.kubernetes, log)
	a, err := agent.New(agent.Config{
		Requests: requests,
		Node:     n.node(), Version: version, Backend: storage, Pools: []agent.Pool{{Name: nfsPool, Path: n.poolDir(), Engine: n.engine}}, Address: n.address,
		Client: c.holdfast, Kubernetes: c.kubernetes, Namespace: n.namespace, Events: c.events, Log: log,
	})
	return a, logged(log, requests.Run), err
}

// errPoolBack ends a server that only reported that its pool is out of reach.
var errPoolBack = errors.New("the pool is available now; this process exits to be restarted and serve it")

// awaitPool runs while the pool is out of reach. It answers no client: clients that have a volume mounted wait, and get
// no error that it is gone.
func (n *nfs) awaitPool(storage *local.Backend, c *clients, log *slog.Logger) ([]part, error) {
	a, requests, err := n.agent(storage, c, log)
	if err != nil {
		return nil, err
	}
	back := func(ctx context.Context) error {
		err := wait.PollUntilContextCancel(ctx, time.Second, false, func(ctx context.Context) (bool, error) {
			return outOfReach(ctx, storage) == nil, nil
		})
		if err != nil {
			return nil //nolint:nilerr // it was to end
		}
		return errPoolBack
	}
	return []part{c.broadcast, logged(log, a.Run), requests, back}, nil
}

// outOfReach says why the pool cannot be served.
func outOfReach(ctx context.Context, storage *local.Backend) error {
	if _, err := storage.Capacity(ctx, nfsPool); err != nil {
		return fmt.Errorf("no volume is served: %w", err)
	}
	return nil
}
