//go:build linux && !client

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/holdfast-storage/holdfast/driver"
	"github.com/holdfast-storage/holdfast/healthz"
	"github.com/holdfast-storage/holdfast/listener"
)

// maxScrapes are served at once. Each holds all metrics until they are written, several megabytes in a large cluster.
const maxScrapes = 4

// monitoring is what a process reports of itself over HTTP: /metrics, /livez and /readyz.
type monitoring struct {
	address  string
	port     net.Listener // nil until serve opens one at the address
	registry *prometheus.Registry
	health   *healthz.Checks
}

func monitoringFlags(flags *pflag.FlagSet) *monitoring {
	m := &monitoring{registry: prometheus.NewRegistry(), health: &healthz.Checks{}}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), buildInfo())
	flags.StringVar(&m.address, "metrics-address", "", "`address` for /metrics, /livez and /readyz, such as 127.0.0.1:9090; none if empty")
	return m
}

func buildInfo() prometheus.Collector {
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "holdfast_build_info", Help: "Always 1; the labels are the version, the commit and the version of Go that this process was built from.",
	}, []string{"version", "revision", "goversion"})
	info.WithLabelValues(version, revision(), runtime.Version()).Set(1)
	return info
}

// serve is a part that answers from its start on, whatever the other parts wait for. Without an address it does nothing.
func (m *monitoring) serve(log *slog.Logger) part {
	m.health.Log = log
	return func(ctx context.Context) (err error) {
		if m.address == "" {
			return nil
		}
		if m.port == nil {
			if m.port, err = new(net.ListenConfig).Listen(ctx, "tcp", m.address); err != nil {
				return fmt.Errorf("--metrics-address: %w", err)
			}
		}
		mux := http.NewServeMux()
		metrics := promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{CoalesceGather: true})
		mux.Handle("GET /metrics", listener.LimitRequests(metrics, maxScrapes))
		mux.Handle("/", m.health.Handler())
		server := listener.HTTP(mux)
		stopped := context.AfterFunc(ctx, func() { server.Close() })
		defer stopped()
		log.Info("serving metrics", "address", m.port.Addr().String())
		if err := server.Serve(listener.Limit(m.port, listener.Connections)); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}
}

// checkCSI adds the check csi: the process is ready while its CSI socket answers, and stuck when a socket that has
// answered does so no more. Until then the start may wait for others, such as the API server.
func (m *monitoring) checkCSI(endpoint string) error {
	socket, err := driver.SocketPath(endpoint)
	if err != nil {
		return err
	}
	soon := backoff.DefaultConfig
	soon.BaseDelay, soon.MaxDelay = 10*time.Millisecond, time.Second // a probe has the state of now
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(grpc.ConnectParams{Backoff: soon, MinConnectTimeout: time.Second}))
	if err != nil {
		return err
	}
	var answered atomic.Bool
	ask := func(ctx context.Context) error {
		if _, err := csi.NewIdentityClient(conn).GetPluginInfo(ctx, &csi.GetPluginInfoRequest{}); err != nil {
			return fmt.Errorf("the CSI socket does not answer: %w", err)
		}
		answered.Store(true)
		return nil
	}
	m.health.Ready("csi", ask)
	m.health.Live("csi", func(ctx context.Context) error {
		if err := ask(ctx); answered.Load() {
			return err
		}
		return nil
	})
	return nil
}
