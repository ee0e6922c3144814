package provisioner

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller/metrics"
)

// Metrics count what the library does for provisioners of this process.
type Metrics metrics.Metrics

// NewMetrics returns metrics that begin at zero.
func NewMetrics() *Metrics {
	m := Metrics(metrics.New("holdfast_nfs_provisioner"))
	return &m
}

// Collectors are all of them.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.PersistentVolumeClaimProvisionTotal, m.PersistentVolumeClaimProvisionFailedTotal, m.PersistentVolumeClaimProvisionDurationSeconds,
		m.PersistentVolumeDeleteTotal, m.PersistentVolumeDeleteFailedTotal, m.PersistentVolumeDeleteDurationSeconds,
	}
}
