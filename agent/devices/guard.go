package devices

import (
	"errors"
	"sync"
)

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

// Verdict is what a Guard has decided, and tells those who wait. The zero value refuses nothing.
type Verdict struct {
	mu      sync.Mutex
	why     error
	changed chan struct{} // closed at the next change; nil as long as nobody has asked
}

// Now is the Refusal of a Guard.
func (v *Verdict) Now() (changed <-chan struct{}, why error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.changed == nil {
		v.changed = make(chan struct{})
	}
	return v.changed, v.why
}

// Set decides anew, and says whether that is another decision.
func (v *Verdict) Set(why error) (other bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	same := (why == nil) == (v.why == nil) && (why == nil || why.Error() == v.why.Error())
	v.why = why
	if same {
		return false
	}
	if v.changed != nil {
		close(v.changed)
		v.changed = nil
	}
	return true
}
