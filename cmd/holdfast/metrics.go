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
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// probeTimeout is how long the socket may take to answer a health check.
const probeTimeout = 5 * time.Second

// serveMetrics serves /metrics, and /healthz for whether the CSI socket answers and check agrees, until ctx ends.
func serveMetrics(ctx context.Context, address string, metrics prometheus.Gatherer, endpoint string, check func() error, log *slog.Logger) error {
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("--metrics-address: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.Handle("GET /healthz", healthz(csi.NewIdentityClient(conn), check))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: probeTimeout}
	stopped := context.AfterFunc(ctx, func() { server.Close() })
	defer stopped()
	log.Info("serving metrics", "address", listener.Addr().String())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func healthz(driver csi.IdentityClient, check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), probeTimeout)
		defer cancel()
		if _, err := driver.Probe(ctx, &csi.ProbeRequest{}); err != nil {
			http.Error(w, "the CSI socket does not answer: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		if err := check(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}
