package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-storage/holdfast/backend/local"
	"github.com/holdfast-storage/holdfast/driver"
	"github.com/holdfast-storage/holdfast/driver/registration"
)

var standaloneCommand = command{
	name:    "standalone",
	summary: "Serve the pools of this host over CSI, without Kubernetes",
	text: `
One process, one unix socket: the identity, controller, group controller and node services. It must run as root, where
the volumes are used. All state is in the pools; it may be stopped or killed at any time and started again.

  holdfast standalone --endpoint unix:///run/holdfast/csi.sock --node-id node1 \
      --pool name=fast,path=/srv/fast --metrics-address 127.0.0.1:9090
`,
	prepare: func(flags *flag.FlagSet) func(context.Context, io.Writer) error {
		s := &standalone{pools: poolFlag(flags), logging: logFlags(flags)}
		flags.StringVar(&s.driver.Endpoint, "endpoint", "unix:///run/holdfast/csi.sock", "the `socket` to serve on; only root may connect")
		flags.StringVar(&s.driver.NodeID, "node-id", "", "`name` of this host, 1 to 63 of letters, digits, -, _ and .; volumes say by it where they are")
		flags.StringVar(&s.driver.Name, "driver-name", driver.DefaultName, "`name` of the driver, as StorageClasses have it")
		flags.Int64Var(&s.driver.MaxVolumes, "max-volumes", 0, "how many volumes may be used here at once, a `number`; 0: the caller decides")
		flags.DurationVar(&s.driver.StopTimeout, "stop-timeout", driver.DefaultStopTimeout, "how long a stop waits for running calls, a `duration`")
		flags.StringVar(&s.registrationDir, "kubelet-registration-dir", "", "`directory` in which the kubelet looks for drivers, such as /var/lib/kubelet/plugins_registry; none if empty. The kubelet must find the endpoint at the same path")
		flags.StringVar(&s.metricsAddress, "metrics-address", "", "`address` for /metrics and /healthz, such as 127.0.0.1:9090; none if empty")
		return s.run
	},
}

type standalone struct {
	*pools
	*logging
	driver          driver.Config
	registrationDir string
	metricsAddress  string
}

func (s *standalone) run(ctx context.Context, _ io.Writer) (err error) {
	if err := s.check(); err != nil {
		return err
	}
	log, err := s.logger()
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s.driver.Version, s.driver.Log, s.driver.Registerer = version, log, registry

	storage, err := local.Open(ctx, *s.pools, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close(context.WithoutCancel(ctx), storage)) }()
	if err := registry.Register(storage.Collector()); err != nil {
		return err
	}
	s.driver.Backend = storage
	d, err := driver.New(s.driver)
	if err != nil {
		return err
	}
	return s.serve(ctx, d, registry, log)
}

// serve runs all parts until one fails or ctx ends.
func (s *standalone) serve(ctx context.Context, d *driver.Driver, metrics prometheus.Gatherer, log *slog.Logger) error {
	registered := func() error { return nil }
	parts := []func(context.Context) error{d.Run}
	if s.registrationDir != "" {
		r, err := registration.New(registration.Config{Directory: s.registrationDir, Endpoint: s.driver.Endpoint, Log: log})
		if err != nil {
			return fmt.Errorf("--kubelet-registration-dir: %w", err)
		}
		registered = r.Check
		parts = append(parts, r.Run)
	}
	if s.metricsAddress != "" {
		parts = append(parts, func(ctx context.Context) error {
			return serveMetrics(ctx, s.metricsAddress, metrics, s.driver.Endpoint, registered, log)
		})
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, part := range parts {
		group.Go(func() error { return part(ctx) })
	}
	return group.Wait()
}

// close lets operations end that outlived their calls.
func (s *standalone) close(ctx context.Context, storage *local.Backend) error {
	ctx, cancel := context.WithTimeout(ctx, max(s.driver.StopTimeout, time.Second))
	defer cancel()
	if err := storage.Close(ctx); err != nil {
		return fmt.Errorf("closing the pools: %w", err)
	}
	return nil
}
