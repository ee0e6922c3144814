package backend

import (
	"cmp"
	"errors"
)

// PoolIdentity identifies a pool, regardless of its name and path.
type PoolIdentity struct {
	ID         string // written in the pool when it was begun
	Generation int64  // counts how often it was opened: of two with one ID the lower one is an older copy
}

// UnknownPool stands for the ID of a pool that is known to have been there, but not by its ID.
const UnknownPool = "unknown"

// PoolExpectation is what is remembered of a pool that is to be opened. The zero value is that of a new one.
type PoolExpectation struct {
	PoolIdentity // empty: not known
	// Existed says of a pool whose ID is not known that it was there.
	Existed bool
	// Empty says that the pool held nothing when it was last seen, so that another one that lies in its place may be served.
	// None is begun: the disk of this one may just not be mounted.
	Empty bool
	// Unread says that the memory could not be read yet: a pool that is there is served, and none is begun.
	Unread bool
	// Given is the ID of a pool that was given up: what is remembered of it does not count any more.
	Given string
	// Remedy says how to give the pool up, for messages.
	Remedy string
}

// MayBegin says whether an empty directory may become a new pool.
func (e PoolExpectation) MayBegin() bool { return !e.Unread && !e.Existed && e.ID == "" }

// Remembered is the ID by which the pool can be given up; empty if nothing is remembered.
func (e PoolExpectation) Remembered() string {
	if e.Existed {
		return cmp.Or(e.ID, UnknownPool)
	}
	return e.ID
}

// PoolMemory is implemented by backends that know their pools by identity.
type PoolMemory interface {
	// ExpectPool sets what is remembered of a pool. It replaces a memory that was Unread, and closes the pool if it is
	// another one. Afterwards the backend itself remembers, and only Given counts, while the pool is out of reach.
	ExpectPool(pool string, e PoolExpectation)
	// NotifyPools sets what is called when a pool was opened or went out of reach. It must not call the backend.
	NotifyPools(changed func())
}

// PoolReason says in a word why a pool is out of reach.
type PoolReason string

const (
	// NotMounted: where the pool should be, there is none.
	NotMounted PoolReason = "NotMounted"
	// WrongPool: where the pool should be, there is another one, or an older copy of it.
	WrongPool PoolReason = "WrongPool"
)

// poolError is an ErrUnavailable with a reason.
type poolError struct {
	reason PoolReason
	err    error
}

func (e *poolError) Error() string   { return e.err.Error() }
func (e *poolError) Unwrap() []error { return []error{ErrUnavailable, e.err} }

// BecauseOf gives an error a reason, with which it is an ErrUnavailable. Without one it stays what it is.
func BecauseOf(reason PoolReason, err error) error {
	if reason == "" || err == nil {
		return err
	}
	return &poolError{reason, err}
}

// PoolReasonOf finds the reason of an error; empty if it has none.
func PoolReasonOf(err error) PoolReason {
	if e, ok := errors.AsType[*poolError](err); ok {
		return e.reason
	}
	return ""
}
