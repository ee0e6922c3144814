package provisioner

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller/metrics"
)

// Metrics are the library's, for the provisioners of this process.
type Metrics metrics.Metrics

// NewMetrics returns metrics that start at zero.
func NewMetrics() *Metrics {
	m := Metrics(metrics.New("holdfast_nfs_provisioner"))
	return &m
}

// Collectors returns all of them, to register.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.PersistentVolumeClaimProvisionTotal, m.PersistentVolumeClaimProvisionFailedTotal, m.PersistentVolumeClaimProvisionDurationSeconds,
		m.PersistentVolumeDeleteTotal, m.PersistentVolumeDeleteFailedTotal, m.PersistentVolumeDeleteDurationSeconds,
	}
}
