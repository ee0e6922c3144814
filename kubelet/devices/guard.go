package devices

import "errors"

// Guard decides whether loop devices may be allocated now: the kubelet does not say for which pod it asks.
type Guard interface {
	// Refusal returns why nothing may be allocated now, or nil; changed is closed when that changes.
	Refusal() (changed <-chan struct{}, why error)
}

// ErrNoGuard is why a Plugin without a Guard allocates nothing.
var ErrNoGuard = errors.New("no guard decides which pods may have loop devices")

// noGuard, the default, refuses every allocation.
type noGuard struct{}

func (noGuard) Refusal() (<-chan struct{}, error) { return nil, ErrNoGuard }
