package local

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	capacityDesc   = prometheus.NewDesc("holdfast_pool_capacity_bytes", "Size of the pool: of its file system, or of its part of a Ceph cluster.", []string{"pool"}, nil)
	promisedDesc   = prometheus.NewDesc("holdfast_pool_promised_bytes", "Bytes promised to volumes, snapshots and trash.", []string{"pool"}, nil)
	usedDesc       = prometheus.NewDesc("holdfast_pool_used_bytes", "Bytes of the pool that are in use, by Holdfast or others.", []string{"pool"}, nil)
	availableDesc  = prometheus.NewDesc("holdfast_pool_available_bytes", "Bytes that can still be promised, including what the trash would free.", []string{"pool"}, nil)
	volumesDesc    = prometheus.NewDesc("holdfast_pool_volumes", "Volumes of the pool.", []string{"pool"}, nil)
	snapshotsDesc  = prometheus.NewDesc("holdfast_pool_snapshots", "Snapshots of the pool.", []string{"pool"}, nil)
	trashDesc      = prometheus.NewDesc("holdfast_pool_trash_volumes", "Deleted volumes of the pool that can be restored.", []string{"pool"}, nil)
	leftoversDesc  = prometheus.NewDesc("holdfast_pool_leftovers", "Entries of the pool that could not be removed yet and whose space stays promised; the log says why.", []string{"pool"}, nil)
	upDesc         = prometheus.NewDesc("holdfast_pool_up", "1 while the pool can be used, else 0.", []string{"pool"}, nil)
	healthyDesc    = prometheus.NewDesc("holdfast_pool_healthy", "1 while the kernel has found no errors in the pool's file system, else 0.", []string{"pool"}, nil)
	unhealthyDesc  = prometheus.NewDesc("holdfast_pool_unhealthy_volumes", "Volumes of the pool whose file systems have errors (FileSystemErrors), whose devices have had I/O errors (DeviceErrors) or which could not be grown (NotGrown).", []string{"pool", "reason"}, nil)
	readsDesc      = volumeDesc("reads_total", "Reads of the volume that the kernel has completed")
	readBytesDesc  = volumeDesc("read_bytes_total", "Bytes read from the volume")
	writesDesc     = volumeDesc("writes_total", "Writes to the volume that the kernel has completed")
	writtenDesc    = volumeDesc("written_bytes_total", "Bytes written to the volume")
	operationsDesc = prometheus.NewDesc("holdfast_operations_in_flight", "Creations, snapshots, deletions and similar operations that are running.", nil, nil)
	oldestDesc     = prometheus.NewDesc("holdfast_oldest_operation_seconds", "Age of the oldest creation, snapshot, deletion or similar operation that is running; 0 if none is.", nil, nil)
)

// volumeDesc describes a counter that starts at 0 when the volume is attached, or when this process first sees it
// attached.
func volumeDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("holdfast_volume_"+name, help+", of an image that is in use here, by the counters of its loop device. What the page cache answers is not counted.", []string{"pool", "volume"}, nil)
}

// scrapeLimit is how long a scrape waits for a pool whose disk does not answer.
const scrapeLimit = 5 * time.Second

// Collector measures the pools at each scrape.
func (b *Backend) Collector() prometheus.Collector { return collector{b} }

type collector struct{ *Backend }

func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{capacityDesc, promisedDesc, usedDesc, availableDesc, volumesDesc, snapshotsDesc, trashDesc, leftoversDesc, upDesc, healthyDesc, unhealthyDesc, readsDesc, readBytesDesc, writesDesc, writtenDesc, operationsDesc, oldestDesc} {
		ch <- d
	}
}

func (c collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeLimit)
	defer cancel()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	c.mu.RLock()
	for _, s := range c.slots {
		if s.pool == nil {
			gauge(upDesc, 0, s.Name)
		}
	}
	c.mu.RUnlock()
	for _, p := range c.pools() {
		up := 0.0
		if p.usable() == nil {
			up = 1
		}
		gauge(upDesc, up, p.Name)
		gauge(volumesDesc, float64(len(p.each(volumes))), p.Name)
		gauge(snapshotsDesc, float64(len(p.each(snapshots))), p.Name)
		gauge(trashDesc, float64(len(p.trashed())), p.Name)
		gauge(leftoversDesc, float64(p.leftoverCount()), p.Name)
		healthy, ailing := p.healthCount()
		gauge(healthyDesc, healthy, p.Name)
		for reason, count := range ailing {
			gauge(unhealthyDesc, float64(count), p.Name, string(reason))
		}
		capacity, err := c.Capacity(ctx, p.Name)
		if err != nil {
			continue
		}
		gauge(capacityDesc, float64(capacity.Total), p.Name)
		gauge(promisedDesc, float64(capacity.Promised), p.Name)
		gauge(usedDesc, float64(capacity.Used), p.Name)
		gauge(availableDesc, float64(capacity.Available), p.Name)
	}
	for _, v := range c.Traffic(ctx) {
		count := func(d *prometheus.Desc, n uint64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), v.Pool, string(v.ID))
		}
		count(readsDesc, v.Reads)
		count(readBytesDesc, v.ReadBytes)
		count(writesDesc, v.Writes)
		count(writtenDesc, v.WrittenBytes)
	}
	count, oldest := c.ops.InFlight()
	gauge(operationsDesc, float64(count))
	gauge(oldestDesc, oldest.Seconds())
}
