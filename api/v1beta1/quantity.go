package v1beta1

import "k8s.io/apimachinery/pkg/api/resource"

// Bytes is 0 where there is no quantity.
func Bytes(q *resource.Quantity) int64 {
	if q == nil {
		return 0
	}
	return q.Value()
}

// Quantity is a number of bytes, as people write it.
func Quantity(bytes int64) *resource.Quantity { return resource.NewQuantity(bytes, resource.BinarySI) }
