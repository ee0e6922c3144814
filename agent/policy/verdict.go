package policy

import "sync"

// Verdict holds the last decision of a Guard and notifies waiters of changes. The zero value refuses nothing.
type Verdict struct {
	mu      sync.Mutex
	why     error
	changed chan struct{} // closed at the next change; nil while there is no waiter
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

// Set replaces the decision, and says whether it changed.
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
