package convert

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

// ToCapacity is the room of a pool as it was last reported.
func ToCapacity(p *v1beta1.Pool) backend.Capacity {
	return backend.Capacity{
		Total: p.Capacity.Value(), Promised: p.Promised.Value(), Used: p.Used.Value(), Available: p.Available.Value(),
		Smallest: p.Smallest.Value(), Largest: p.Largest.Value(),
		Identity: backend.PoolIdentity{ID: p.ID, Generation: p.Generation},
	}
}

// ShowCapacity writes the room of a pool into its status, but for its condition. An identity that is known stays.
func ShowCapacity(p *v1beta1.Pool, c backend.Capacity) {
	if c.Identity.ID != "" {
		p.ID, p.Generation = c.Identity.ID, c.Identity.Generation
	}
	p.Capacity, p.Promised, p.Used = *v1beta1.Quantity(c.Total), *v1beta1.Quantity(c.Promised), *v1beta1.Quantity(c.Used)
	p.Available, p.Smallest, p.Largest = *v1beta1.Quantity(c.Available), *v1beta1.Quantity(c.Smallest), *v1beta1.Quantity(c.Largest)
}

// FromPoolError says in a word why a pool is out of reach.
func FromPoolError(err error) string {
	return cmp.Or(string(backend.PoolReasonOf(err)), v1beta1.ReasonPoolFailing)
}

// FromTrashed is in whole seconds, as the API keeps times.
func FromTrashed(t backend.Trashed) v1beta1.TrashedVolume {
	return v1beta1.TrashedVolume{
		Name: string(t.ID), Pool: t.Pool, ClaimRef: v1beta1.ReferenceTo(v1beta1.ClaimOf(t.Labels)), Size: *v1beta1.Quantity(t.Size),
		DeletionTime: metav1.NewTime(t.Deleted.Truncate(time.Second)), ExpirationTime: metav1.NewTime(t.Expires.Truncate(time.Second)),
	}
}
