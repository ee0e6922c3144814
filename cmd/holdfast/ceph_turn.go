//go:build linux && !client

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
)

const (
	// tryEvery is how often a process that stands by tries again what it could not do.
	tryEvery = 5 * time.Second
	// triesFor is longer than the Lease of a holder that has ended lasts: after that, another process serves the pool for certain.
	triesFor = leaseLasts * 3 / 2
	// terminationLog is the file of a container from which its status has the reason for which it ended.
	terminationLog = "/dev/termination-log"
)

// servable is a pool that a process serves, or could serve.
type servable interface {
	Ready(ctx context.Context) error
	Try(ctx context.Context) error
	Close(ctx context.Context) error
}

// turn is when a process serves its pool: while it holds the Lease. Before, it stands by.
type turn struct {
	pool        servable
	lease       kube.Lease
	stopTimeout time.Duration
	log         *slog.Logger
	tryEvery    time.Duration
	triesFor    time.Duration
	reason      string // the file for the reason of an end

	tried  atomic.Bool // the pool could be served
	serves atomic.Bool
}

func (c *cephPool) turn(pool servable, clients *clients, log *slog.Logger) (*turn, error) {
	holder, err := holderOf(c.identity)
	if err != nil {
		return nil, err
	}
	return &turn{
		pool: pool, stopTimeout: c.stopTimeout, log: log.With("pool", c.site.Pool), tryEvery: tryEvery, triesFor: triesFor, reason: terminationLog,
		lease: kube.Lease{Client: clients.kubernetes.CoordinationV1(), Namespace: c.namespace, Name: v1beta1.LeaseOfCephPool(c.site.Pool), Holder: holder, Lasts: leaseLasts},
	}, nil
}

// ready is for the Deployment: it ends the pod before when this one could serve the pool.
func (t *turn) ready(ctx context.Context) error {
	if t.tried.Load() && !t.serves.Load() {
		return nil
	}
	return t.pool.Ready(ctx)
}

// run runs all parts while the Lease is held, and ends when another process serves the pool, which this one could not.
func (t *turn) run(ctx context.Context, parts []part) error {
	waiting, end := context.WithCancelCause(ctx)
	defer end(nil)
	trying, begins := context.WithCancel(waiting)
	defer begins()
	var once sync.Once
	t.lease.Standby = func(holder string) {
		once.Do(func() {
			if err := t.standBy(trying, holder); err != nil {
				t.explain(err)
				end(err)
			}
		})
	}
	err := t.lease.Lead(waiting, func(ctx context.Context) error {
		t.serves.Store(true)
		begins()
		err := runAll(ctx, parts)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.stopTimeout)
		defer cancel()
		return errors.Join(err, t.pool.Close(ctx)) // before another one may serve it
	})
	if err == nil && ctx.Err() == nil {
		return context.Cause(waiting)
	}
	return err
}

// explain has the status of the container say why it ends, in place of the last lines of its log, which are many.
func (t *turn) explain(why error) {
	f, err := os.OpenFile(t.reason, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return // it is in no container
	}
	_, err = f.WriteString(why.Error())
	if err := errors.Join(err, f.Close()); err != nil {
		t.log.Warn("the status of the container will not say why it ends", "error", err)
	}
}

// standBy tries the pool until it could be served.
func (t *turn) standBy(ctx context.Context, holder string) error {
	begun, again := time.Now(), time.NewTicker(t.tryEvery)
	defer again.Stop()
	for {
		err := t.pool.Try(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			t.tried.Store(true)
			t.log.Info("the pool could be served by this process, when the one that serves it ends", "holder", holder)
			return nil
		case time.Since(begun) > t.triesFor:
			return fmt.Errorf("%w; so it is not taken over from %s, which serves it", err, holder)
		}
		t.log.Warn("the pool could not be served by this process; trying again", "holder", holder, "error", err)
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		}
	}
}
