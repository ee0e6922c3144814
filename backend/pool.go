package backend

import (
	"cmp"
	"errors"
)

// PoolIdentity identifies a pool, regardless of its name and path.
type PoolIdentity struct {
	ID         string // written to the pool when it is initialized
	Generation int64  // number of times it was opened: of two pools with the same ID, the lower one is an outdated copy
}

// UnknownPool stands for the ID of a pool that is known to exist although its ID is not.
const UnknownPool = "unknown"

// PoolExpectation is what is remembered of a pool that is about to be opened. The zero value stands for a new pool.
type PoolExpectation struct {
	PoolIdentity // empty: unknown
	// Existed: the pool is known to have existed although its ID is not known.
	Existed bool
	// Empty: the pool had no volumes when it was last open, so another pool at its path may be used. No new pool is
	// initialized: the disk of this one may just not be mounted.
	Empty bool
	// Unread: the record could not be read yet. An existing pool is used, and no new one is initialized.
	Unread bool
	// Given is the ID of a pool that was given up: what is remembered of it is ignored.
	Given string
	// Remedy is how to give the pool up, for messages.
	Remedy string
}

// MayBegin returns whether an empty directory may be initialized as a new pool.
func (e PoolExpectation) MayBegin() bool { return !e.Unread && !e.Existed && e.ID == "" }

// Remembered returns the ID by which the pool can be given up; empty if nothing is remembered.
func (e PoolExpectation) Remembered() string {
	if e.Existed {
		return cmp.Or(e.ID, UnknownPool)
	}
	return e.ID
}

// PoolMemory is implemented by backends whose pools have identities.
type PoolMemory interface {
	// ExpectPool sets what is remembered of a pool. It replaces an expectation that was Unread, and closes the pool if it
	// is not the expected one. After the pool was opened, the backend itself remembers it, and only Given has an effect,
	// while the pool is unavailable.
	ExpectPool(pool string, e PoolExpectation)
	// NotifyPools sets a function that is called when a pool is opened or becomes unavailable. It must not call the
	// backend.
	NotifyPools(changed func())
}

// PoolReason is why a pool is unavailable, as a condition reason.
type PoolReason string

const (
	// NotMounted: there is no pool at the path.
	NotMounted PoolReason = "NotMounted"
	// WrongPool: there is another pool at the path, or an outdated copy.
	WrongPool PoolReason = "WrongPool"
	// NoPool: the node has no such pool.
	NoPool PoolReason = "NoPool"
	// NoDisk: the pool is new, and no disk is free for it. It has nothing.
	NoDisk PoolReason = "NoDisk"
)

// poolError is an ErrUnavailable with a PoolReason.
type poolError struct {
	reason PoolReason
	err    error
}

func (e *poolError) Error() string   { return e.err.Error() }
func (e *poolError) Unwrap() []error { return []error{ErrUnavailable, e.err} }

// BecauseOf returns an ErrUnavailable with this reason; with an empty reason it returns err.
func BecauseOf(reason PoolReason, err error) error {
	if reason == "" || err == nil {
		return err
	}
	return &poolError{reason, err}
}

// PoolReasonOf returns the reason of an error, or "".
func PoolReasonOf(err error) PoolReason {
	if e, ok := errors.AsType[*poolError](err); ok {
		return e.reason
	}
	return ""
}
