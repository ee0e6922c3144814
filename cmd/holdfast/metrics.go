package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/holdfast-storage/holdfast/listener"
)

// probeTimeout is how long the socket may take to answer a health check.
const probeTimeout = 5 * time.Second

func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// serveMetrics serves /metrics, /healthz for what check says, and /livez for that this process answers, until ctx ends.
func serveMetrics(ctx context.Context, address string, metrics prometheus.Gatherer, check func(context.Context) error, log *slog.Logger) error {
	port, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("--metrics-address: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.Handle("GET /healthz", healthz(check))
	mux.Handle("GET /livez", healthz(func(context.Context) error { return nil }))
	server := listener.HTTP(mux)
	stopped := context.AfterFunc(ctx, func() { server.Close() })
	defer stopped()
	log.Info("serving metrics", "address", port.Addr().String())
	if err := server.Serve(listener.Limit(port, listener.Connections)); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func healthz(check func(context.Context) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), probeTimeout)
		defer cancel()
		if err := check(ctx); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}

// serveDriverMetrics is serveMetrics of a process that is healthy if its CSI socket answers and check agrees.
func serveDriverMetrics(ctx context.Context, address string, metrics prometheus.Gatherer, endpoint string, check func() error, log *slog.Logger) error {
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	driver := csi.NewIdentityClient(conn)
	return serveMetrics(ctx, address, metrics, func(ctx context.Context) error {
		if _, err := driver.GetPluginInfo(ctx, &csi.GetPluginInfoRequest{}); err != nil {
			return fmt.Errorf("the CSI socket does not answer: %w", err)
		}
		return check()
	}, log)
}
