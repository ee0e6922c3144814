package convert

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

// ToCapacity returns the capacity of a pool as last reported.
func ToCapacity(p *v1beta1.Pool) backend.Capacity {
	return backend.Capacity{
		Total: p.Capacity.Value(), Promised: p.Promised.Value(), Used: p.Used.Value(), Available: p.Available.Value(),
		Smallest: p.Smallest.Value(), Largest: p.Largest.Value(),
		FileSystem: p.FileSystem, SnapshotCost: backend.SnapshotCost(p.SnapshotCost),
		Identity: backend.PoolIdentity{ID: p.ID, Generation: p.Generation},
	}
}

// ShowCapacity writes the capacity of a pool into its status, without its condition. An empty identity does not
// overwrite a known one.
func ShowCapacity(p *v1beta1.Pool, c backend.Capacity) {
	if c.Identity.ID != "" {
		p.ID, p.Generation = c.Identity.ID, c.Identity.Generation
	}
	p.FileSystem, p.SnapshotCost = c.FileSystem, v1beta1.SnapshotCost(c.SnapshotCost)
	p.Capacity, p.Promised, p.Used = *v1beta1.Quantity(c.Total), *v1beta1.Quantity(c.Promised), *v1beta1.Quantity(c.Used)
	p.Available, p.Smallest, p.Largest = *v1beta1.Quantity(c.Available), *v1beta1.Quantity(c.Smallest), *v1beta1.Quantity(c.Largest)
}

// FromPoolError returns the condition reason for an error of a pool.
func FromPoolError(err error) string {
	return cmp.Or(string(backend.PoolReasonOf(err)), v1beta1.ReasonPoolFailing)
}

// FromTrashed truncates times to seconds, the precision of metav1.Time.
func FromTrashed(t backend.Trashed) v1beta1.TrashedVolume {
	return v1beta1.TrashedVolume{
		Name: string(t.ID), Pool: t.Pool, ClaimRef: v1beta1.ReferenceTo(v1beta1.ClaimOf(t.Labels)), Size: *v1beta1.Quantity(t.Size),
		DeletionTime: metav1.NewTime(t.Deleted.Truncate(time.Second)), ExpirationTime: metav1.NewTime(t.Expires.Truncate(time.Second)),
		Incomplete: t.Incomplete,
	}
}
