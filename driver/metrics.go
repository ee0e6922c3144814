package driver

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-storage/holdfast/backend"
)

type metrics struct {
	calls   *prometheus.CounterVec
	seconds *prometheus.HistogramVec
	panics  prometheus.Counter
}

// newMetrics registers the metrics, unless r is nil. The labels of calls are those of the kubelet's csi_operations_seconds, and have
// the same values.
func newMetrics(ops *backend.Operations, r prometheus.Registerer) *metrics {
	to := promauto.With(r)
	to.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "holdfast_csi_node_operations_in_flight", Help: "NodeStageVolume, NodePublishVolume and similar operations that are running.",
	}, func() float64 {
		count, _ := ops.InFlight()
		return float64(count)
	})
	to.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "holdfast_csi_node_oldest_operation_seconds", Help: "Age of the oldest NodeStageVolume, NodePublishVolume or similar operation that is running; 0 if none is.",
	}, func() float64 {
		_, oldest := ops.InFlight()
		return oldest.Seconds()
	})
	return &metrics{
		calls: to.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_csi_calls_total", Help: "CSI calls that were answered.",
		}, []string{"method_name", "grpc_status_code"}),
		seconds: to.NewHistogramVec(prometheus.HistogramOpts{
			Name: "holdfast_csi_call_duration_seconds", Help: "Time from a CSI call to its answer.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 12),
		}, []string{"method_name"}),
		panics: to.NewCounter(prometheus.CounterOpts{
			Name: "holdfast_csi_panics_total", Help: "CSI calls that failed by a panic; each one is a bug.",
		}),
	}
}

func (m *metrics) observe(method string, code codes.Code, took time.Duration) {
	m.calls.WithLabelValues(method, code.String()).Inc()
	m.seconds.WithLabelValues(method).Observe(took.Seconds())
}
