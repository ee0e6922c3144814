//go:build linux && !client

package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-storage/holdfast/nodeops/ganesha"
)

type nfsCollector struct {
	server interface {
		Statistics(context.Context) (ganesha.Statistics, error)
	}
	log *slog.Logger
}

// nfsPatience is less than Prometheus has.
const nfsPatience = 5 * time.Second

var (
	nfsUp       = nfsDesc("up", "1 while NFS-Ganesha answers, else 0.")
	nfsGrace    = nfsDesc("in_grace", "1 while only locks and opens from before a start are granted, else 0.")
	nfsExports  = nfsDesc("exports", "Exports that are served.")
	nfsClients  = nfsDesc("clients", "Clients that were active lately.")
	nfsRestarts = nfsDesc("restarts_total", "Starts of NFS-Ganesha after it died or did not answer, since the process began.")
	nfsCalls    = nfsDesc("operations_total", "Reads and writes of clients. They continue over restarts of NFS-Ganesha; what a removed volume counted since the last scrape is lost.", "nfs_version", "direction")
	nfsBytes    = nfsDesc("bytes_total", "Bytes that clients have read and written.", "nfs_version", "direction")
	nfsErrors   = nfsDesc("errors_total", "Reads and writes of clients that failed.", "nfs_version", "direction")
)

func nfsDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("holdfast_nfs_"+name, help, labels, nil)
}

func (c *nfsCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{nfsUp, nfsGrace, nfsExports, nfsClients, nfsRestarts, nfsCalls, nfsBytes, nfsErrors} {
		to <- d
	}
}

func (c *nfsCollector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), nfsPatience)
	defer cancel()
	s, err := c.server.Statistics(ctx)
	gauge := func(d *prometheus.Desc, value float64) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value)
	}
	count := func(d *prometheus.Desc, value uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value), labels...)
	}
	gauge(nfsUp, oneIf(s.Up))
	count(nfsRestarts, s.Restarts)
	if err != nil {
		c.log.Debug("NFS-Ganesha reports no statistics", "error", err)
	} else if s.Up {
		gauge(nfsGrace, oneIf(s.InGrace))
		gauge(nfsExports, float64(s.Exports))
		gauge(nfsClients, float64(s.Clients))
	}
	for way, traffic := range s.Traffic {
		direction := "read"
		if way.Written {
			direction = "write"
		}
		count(nfsCalls, traffic.Operations, way.Version, direction)
		count(nfsBytes, traffic.Bytes, way.Version, direction)
		count(nfsErrors, traffic.Errors, way.Version, direction)
	}
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
