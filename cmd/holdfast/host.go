package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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
	driver          driver.Config
	registrationDir string
	registersDriver bool
	metricsAddress  string
}

// opener takes the storage of this host for this process.
type opener func(context.Context, *slog.Logger) (*local.Backend, error)

// joiner returns what runs beside the driver, on the same storage.
type joiner func(*local.Backend, *slog.Logger) ([]part, error)

// part is something that runs as long as the process.
type part func(context.Context) error

func hostFlags(flags *flag.FlagSet, endpoint, registrationDir string) *host {
	h := &host{pools: poolFlag(flags), logging: logFlags(flags)}
	flags.StringVar(&h.driver.Endpoint, "endpoint", endpoint, "the `socket` to serve on; only root may connect")
	flags.StringVar(&h.driver.Name, "driver-name", driver.DefaultName, "`name` of the driver, as StorageClasses have it")
	flags.DurationVar(&h.driver.StopTimeout, "stop-timeout", driver.DefaultStopTimeout, "how long a stop waits for running calls, a `duration`")
	flags.StringVar(&h.registrationDir, "kubelet-registration-dir", registrationDir, "`directory` in which the kubelet looks for drivers, such as /var/lib/kubelet/plugins_registry; none if empty. The kubelet must find the endpoint at the same path")
	flags.BoolVar(&h.registersDriver, "register-driver", true, "register the driver with the kubelet; without it, that is left to node-driver-registrar")
	h.inlineFlags(flags)
	flags.StringVar(&h.metricsAddress, "metrics-address", "", "`address` for /metrics and /healthz, such as 127.0.0.1:9090; none if empty")
	return h
}

// run serves until ctx ends, or a part does with an error.
func (h *host) run(ctx context.Context, open opener, join joiner) (err error) {
	log, err := h.logger()
	if err != nil {
		return err
	}
	registry := newRegistry()
	h.driver.Version, h.driver.Log, h.driver.Registerer = version, log, registry

	storage, err := open(ctx, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close(context.WithoutCancel(ctx), storage)) }()
	if err := registry.Register(storage.Collector()); err != nil {
		return err
	}
	h.driver.Backend = storage
	parts, err := join(storage, log)
	if err != nil {
		return err
	}
	d, err := driver.New(h.driver)
	if err != nil {
		return err
	}
	more, err := h.reachable(registry, log)
	if err != nil {
		return err
	}
	return runAll(ctx, append(append(parts, d.Run, followIOErrors(log)), more...))
}

// followIOErrors does without where the kernel's log cannot be read.
func followIOErrors(log *slog.Logger) part {
	return func(ctx context.Context) error {
		if err := nodeops.FollowIOErrors(ctx); err != nil {
			log.Warn("volumes are not unhealthy for I/O errors of their devices", "error", err)
		}
		return nil
	}
}

// reachable returns what makes the driver known to the kubelet and to whoever watches it.
func (h *host) reachable(metrics prometheus.Gatherer, log *slog.Logger) (parts []part, err error) {
	registered := func() error { return nil }
	if h.registrationDir != "" && h.registersDriver {
		r, err := registration.New(registration.Config{Directory: h.registrationDir, Endpoint: h.driver.Endpoint, Log: log})
		if err != nil {
			return nil, fmt.Errorf("--kubelet-registration-dir: %w", err)
		}
		registered = r.Check
		parts = append(parts, r.Run)
	}
	if h.metricsAddress != "" {
		parts = append(parts, func(ctx context.Context) error {
			return serveDriverMetrics(ctx, h.metricsAddress, metrics, h.driver.Endpoint, registered, log)
		})
	}
	return parts, nil
}

// runAll runs all parts until one fails or ctx ends.
func runAll(ctx context.Context, parts []part) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, p := range parts {
		group.Go(func() error { return p(ctx) })
	}
	return group.Wait()
}

// close lets operations end that outlived their calls.
func (h *host) close(ctx context.Context, storage *local.Backend) error {
	ctx, cancel := context.WithTimeout(ctx, max(h.driver.StopTimeout, time.Second))
	defer cancel()
	if err := storage.Close(ctx); err != nil {
		return fmt.Errorf("closing the pools: %w", err)
	}
	return nil
}
