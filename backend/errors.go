package backend

import "errors"

// The errors of a backend. Each front end translates them once; messages wrap them and name the volume, the pool, the
// numbers and what the reader can do.
var (
	// ErrNotFound: no such volume, snapshot or pool.
	ErrNotFound = errors.New("not found")
	// ErrExists: the name is taken by a volume or snapshot with another spec.
	ErrExists = errors.New("already exists with other properties")
	// ErrInvalid: the request can never be met.
	ErrInvalid = errors.New("invalid")
	// ErrOutOfRange: a size that no volume of this kind can have.
	ErrOutOfRange = errors.New("out of range")
	// ErrExhausted: it does not fit here; it may fit on another node or pool.
	ErrExhausted = errors.New("no room")
	// ErrBusy: an operation on the same volume is running; retry.
	ErrBusy = errors.New("busy")
	// ErrPrecondition: the volume is in a state that forbids this, and the message says which.
	ErrPrecondition = errors.New("not possible now")
	// ErrUnavailable: the pool is out of reach: unmounted, read-only or failing.
	ErrUnavailable = errors.New("pool unavailable")
)
