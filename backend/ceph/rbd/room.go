package rbd

// sizeUnit is what sizes are rounded up to.
const sizeUnit = 1 << 20

// room is what the cluster says of the pool that has the content of the images.
type room struct {
	quota  int64 // most bytes; 0: no limit but the cluster
	stored int64 // by anyone
	free   int64 // of the cluster, for this pool
}

func (r room) total() int64 {
	total := r.stored + r.free
	if r.quota > 0 {
		return min(r.quota, total)
	}
	return total
}

// left is how much of it can still be written.
func (r room) left() int64 { return max(0, r.total()-r.stored) }

// available is what can be promised where that much is promised: of the whole room, and of what is free. What others have stored
// counts only in what is free: it is not known how much that is.
func (r room) available(kept int64, overcommit float64, promised int64) int64 {
	byPromise := int64(float64(r.total())*overcommit) - kept - promised
	byFreeSpace := int64(float64(r.left())*overcommit) - kept
	return max(0, min(byPromise, byFreeSpace)) / sizeUnit * sizeUnit
}
