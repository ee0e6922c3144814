package site

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-storage/holdfast/backend"
)

func poolDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("holdfast_pool_"+name, help, []string{"pool"}, nil)
}

// Of the same names as the metrics of pools of hosts.
var (
	capacityDesc  = poolDesc("capacity_bytes", "Size of the pool: of its file system, or of its part of a Ceph cluster.")
	promisedDesc  = poolDesc("promised_bytes", "Bytes promised to volumes, snapshots and trash.")
	usedDesc      = poolDesc("used_bytes", "Bytes of the pool that are in use, by Holdfast or others.")
	availableDesc = poolDesc("available_bytes", "Bytes that can still be promised, including what the trash would free.")
	volumesDesc   = poolDesc("volumes", "Volumes of the pool.")
	snapshotsDesc = poolDesc("snapshots", "Snapshots of the pool.")
	trashDesc     = poolDesc("trash_volumes", "Deleted volumes of the pool that can be restored.")
	upDesc        = poolDesc("up", "1 while the pool can be used, else 0.")
)

// scrapeLimit is how long a scrape waits for a cluster that does not answer.
const scrapeLimit = 5 * time.Second

// Measured is what is measured of a pool.
type Measured interface {
	Capacity(ctx context.Context, pool string) (backend.Capacity, error)
	List(ctx context.Context) ([]*backend.Volume, error)
	ListSnapshots(ctx context.Context) ([]*backend.Snapshot, error)
	Trash(ctx context.Context) ([]backend.Trashed, error)
}

// Collector measures the pool of that name at each scrape.
func Collector(name string, pool Measured) prometheus.Collector { return collector{pool, name} }

type collector struct {
	Measured
	name string
}

func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{capacityDesc, promisedDesc, usedDesc, availableDesc, volumesDesc, snapshotsDesc, trashDesc, upDesc} {
		ch <- d
	}
}

func (c collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeLimit)
	defer cancel()
	gauge := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, c.name)
	}
	capacity, err := c.Capacity(ctx, c.name)
	if err != nil {
		gauge(upDesc, 0)
		return
	}
	gauge(upDesc, 1)
	gauge(capacityDesc, float64(capacity.Total))
	gauge(promisedDesc, float64(capacity.Promised))
	gauge(usedDesc, float64(capacity.Used))
	gauge(availableDesc, float64(capacity.Available))
	if all, err := c.List(ctx); err == nil {
		gauge(volumesDesc, float64(len(all)))
	}
	if all, err := c.ListSnapshots(ctx); err == nil {
		gauge(snapshotsDesc, float64(len(all)))
	}
	if all, err := c.Trash(ctx); err == nil {
		gauge(trashDesc, float64(len(all)))
	}
}
