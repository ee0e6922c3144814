//go:build linux && !client

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-storage/holdfast/backend/local"
	"github.com/holdfast-storage/holdfast/driver"
	"github.com/holdfast-storage/holdfast/kubelet/registration"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// host serves the pools of this host over CSI: by itself, or as a node of a cluster.
type host struct {
	*pools
	*logging
	*monitoring
	driver          driver.Config
	registrationDir string
	registersDriver bool
	storage         atomic.Pointer[local.Backend] // nil while it is being opened
	serving         *driver.Driver                // of the storage, before any part runs
}

// opener opens the storage of this host for this process.
type opener func(context.Context, *slog.Logger) (*local.Backend, error)

// joiner returns the parts that run beside the driver, on the same storage.
type joiner func(*local.Backend, *slog.Logger) ([]part, error)

func hostFlags(flags *pflag.FlagSet, endpoint, registrationDir string) *host {
	h := &host{pools: poolFlag(flags), logging: logFlags(flags), monitoring: monitoringFlags(flags)}
	flags.StringVar(&h.driver.Endpoint, "endpoint", endpoint, "the `socket` to serve on; only root may connect")
	flags.StringVar(&h.driver.Name, "driver-name", driver.DefaultName, "`name` of the driver, as StorageClasses have it")
	flags.DurationVar(&h.driver.StopTimeout, "stop-timeout", driver.DefaultStopTimeout, "how long a stop waits for running calls, a `duration`")
	flags.StringVar(&h.registrationDir, "kubelet-registration-dir", registrationDir, "`directory` in which the kubelet looks for drivers, such as /var/lib/kubelet/plugins_registry; none if empty. The kubelet must find the endpoint at the same path")
	flags.BoolVar(&h.registersDriver, "register-driver", true, "register the driver with the kubelet; disable it when node-driver-registrar does that")
	h.inlineFlags(flags)
	return h
}

// run serves until ctx ends, or a part does with an error.
func (h *host) run(ctx context.Context, open opener, join joiner) error {
	log, err := h.logger()
	if err != nil {
		return err
	}
	if err := h.checkCSI(h.driver.Endpoint); err != nil {
		return err
	}
	h.health.Ready("pools", h.opened)
	parts := []part{h.serve(log), func(ctx context.Context) error { return h.serveStorage(ctx, open, join, log) }}
	if h.registrationDir != "" && h.registersDriver {
		r, err := registration.New(registration.Config{Directory: h.registrationDir, Endpoint: h.driver.Endpoint, Log: log})
		if err != nil {
			return fmt.Errorf("--kubelet-registration-dir: %w", err)
		}
		h.health.Live("kubelet-registration", r.Announced)
		h.health.Ready("kubelet-registration", r.Registered)
		parts = append(parts, r.Run)
	}
	return runAll(ctx, parts)
}

// opened is a check: volumes can be used when the pools were opened.
func (h *host) opened(ctx context.Context) error {
	storage := h.storage.Load()
	if storage == nil {
		return errors.New("the pools are being opened")
	}
	return storage.Opened(ctx)
}

func (h *host) serveStorage(ctx context.Context, open opener, join joiner, log *slog.Logger) (err error) {
	h.driver.Version, h.driver.Log, h.driver.Registerer = version, log, h.registry
	storage, err := open(ctx, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close(context.WithoutCancel(ctx), storage)) }()
	h.storage.Store(storage)
	if err := h.registry.Register(storage.Collector()); err != nil {
		return err
	}
	h.driver.Backend = storage
	parts, err := join(storage, log)
	if err != nil {
		return err
	}
	if h.serving, err = driver.New(h.driver); err != nil {
		return err
	}
	return runAll(ctx, append(parts, h.serving.Run, followIOErrors(log)))
}

// followIOErrors detects no errors where the kernel's log cannot be read.
func followIOErrors(log *slog.Logger) part {
	return func(ctx context.Context) error {
		if err := nodeops.FollowIOErrors(ctx); err != nil {
			log.Warn("I/O errors of devices are not detected", "error", err)
		}
		return nil
	}
}

func runAll(ctx context.Context, parts []part) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, p := range parts {
		group.Go(func() error { return p(ctx) })
	}
	return group.Wait()
}

// close waits for operations that outlive their calls.
func (h *host) close(ctx context.Context, storage *local.Backend) error {
	ctx, cancel := context.WithTimeout(ctx, max(h.driver.StopTimeout, time.Second))
	defer cancel()
	if err := storage.Close(ctx); err != nil {
		return fmt.Errorf("closing the pools: %w", err)
	}
	return nil
}
