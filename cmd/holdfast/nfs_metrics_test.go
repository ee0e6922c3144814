package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/holdfast-storage/holdfast/nodeops/ganesha"
)

type statistics struct {
	are ganesha.Statistics
	err error
}

func (s statistics) Statistics(context.Context) (ganesha.Statistics, error) {
	return s.are, s.err
}

func TestMetrics_OfAServerFollowItsStatistics(t *testing.T) {
	all := ganesha.Statistics{
		Up: true, InGrace: true, Exports: 3, Clients: 2, Restarts: 1,
		Traffic: map[ganesha.Way]ganesha.Traffic{{Version: "4.2", Written: true}: {Operations: 5, Bytes: 4096, Errors: 1}, {Version: "4.1"}: {Operations: 7, Bytes: 10}},
	}
	for name, test := range map[string]struct {
		of   statistics
		want string
	}{
		"up": {statistics{are: all}, `
			holdfast_nfs_up 1
			holdfast_nfs_in_grace 1
			holdfast_nfs_exports 3
			holdfast_nfs_clients 2
			holdfast_nfs_restarts_total 1
			holdfast_nfs_operations_total{direction="read",nfs_version="4.1"} 7
			holdfast_nfs_operations_total{direction="write",nfs_version="4.2"} 5
			holdfast_nfs_bytes_total{direction="read",nfs_version="4.1"} 10
			holdfast_nfs_bytes_total{direction="write",nfs_version="4.2"} 4096
			holdfast_nfs_errors_total{direction="read",nfs_version="4.1"} 0
			holdfast_nfs_errors_total{direction="write",nfs_version="4.2"} 1`},
		"down":   {statistics{are: ganesha.Statistics{Restarts: 4}}, "holdfast_nfs_up 0\nholdfast_nfs_restarts_total 4"},
		"silent": {statistics{ganesha.Statistics{Up: true}, errors.New("late")}, "holdfast_nfs_up 1\nholdfast_nfs_restarts_total 0"},
	} {
		var want []string
		for line := range strings.Lines(test.want) {
			want = append(want, strings.Fields(line)...)
		}
		got := strings.Fields(strings.Join(measured(t, &nfsCollector{test.of, quiet}), " "))
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

// measured are the lines of the metrics of a collector.
func measured(t *testing.T, c prometheus.Collector) (lines []string) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}
