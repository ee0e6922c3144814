package devices

import "errors"

// Guard decides whether anything is lent: the kubelet does not say for which pod it asks.
type Guard interface {
	// Refusal is why nothing may be lent now, nil if it may. changed is closed when that changes.
	Refusal() (changed <-chan struct{}, why error)
}

// ErrNoGuard is why a Plugin without a Guard lends nothing.
var ErrNoGuard = errors.New("no guard decides which pods may have loop devices")

// noGuard is the default, which refuses everything.
type noGuard struct{}

func (noGuard) Refusal() (<-chan struct{}, error) { return nil, ErrNoGuard }
