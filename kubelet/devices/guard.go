package devices

import "errors"

// Guard decides whether anything is lent: the kubelet tells of no pod for whom it asks.
type Guard interface {
	// Refusal is why nothing may be lent now, nil if it may. changed is closed when that changes.
	Refusal() (changed <-chan struct{}, why error)
}

// ErrNoGuard is why a Plugin without a Guard lends nothing.
var ErrNoGuard = errors.New("nobody watches over who is lent loop devices")

// nobody is the Guard of those who have none.
type nobody struct{}

func (nobody) Refusal() (<-chan struct{}, error) { return nil, ErrNoGuard }
