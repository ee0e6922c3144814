package backend

import (
	"errors"
	"fmt"
)

// The sentinels of a backend. Errors wrap them with a message that names the volume or pool, the values, and what to
// do. Each front end translates them in one place.
var (
	// ErrNotFound: the volume, snapshot or pool does not exist.
	ErrNotFound = errors.New("not found")
	// ErrExists: the name belongs to a volume or snapshot with another spec.
	ErrExists = errors.New("already exists with other properties")
	// ErrInvalid: the request can never be met.
	ErrInvalid = errors.New("invalid")
	// ErrUnsupported: no volume of this kind can do that yet; the message says what it waits for.
	ErrUnsupported = errors.New("not supported")
	// ErrOutOfRange: no volume of this kind can have the requested size.
	ErrOutOfRange = errors.New("out of range")
	// ErrExhausted: it does not fit into this pool; another node or pool may have space.
	ErrExhausted = errors.New("no room")
	// ErrBusy: another operation on the same volume is running; retry.
	ErrBusy = errors.New("busy")
	// ErrPrecondition: the state of the volume does not allow it; the message says why.
	ErrPrecondition = errors.New("not possible now")
	// ErrInUse is an ErrPrecondition: the volume is in use on this host.
	ErrInUse = fmt.Errorf("%w", ErrPrecondition)
	// ErrUnavailable: the pool is unmounted, read-only or failing.
	ErrUnavailable = errors.New("pool unavailable")
)

// IsAbsent returns whether an entry certainly does not exist. One that is not found may be in a pool that is out of reach.
func IsAbsent(err error) bool {
	return errors.Is(err, ErrNotFound) && !errors.Is(err, ErrUnavailable)
}
