package backend

import (
	"errors"
	"fmt"
	"strings"
)

// Code is the name of a sentinel, for errors that are written down and read by another process.
type Code string

const (
	CodeNotFound     Code = "NotFound"
	CodeExists       Code = "Exists"
	CodeInvalid      Code = "Invalid"
	CodeOutOfRange   Code = "OutOfRange"
	CodeExhausted    Code = "Exhausted"
	CodeBusy         Code = "Busy"
	CodePrecondition Code = "Precondition"
	CodeUnavailable  Code = "Unavailable"
)

// sentinels pairs codes with errors. ErrBusy comes first: it may wrap how an earlier attempt ended.
var sentinels = []struct {
	code Code
	err  error
}{
	{CodeBusy, ErrBusy},
	{CodeNotFound, ErrNotFound},
	{CodeExists, ErrExists},
	{CodeInvalid, ErrInvalid},
	{CodeOutOfRange, ErrOutOfRange},
	{CodeExhausted, ErrExhausted},
	{CodePrecondition, ErrPrecondition},
	{CodeUnavailable, ErrUnavailable},
}

// CodeOf names the sentinel that err is. What is none of them is a storage that fails, and Unavailable.
func CodeOf(err error) Code {
	for _, s := range sentinels {
		if errors.Is(err, s.err) {
			return s.code
		}
	}
	return CodeUnavailable
}

// Permanent says whether repeating a request that failed with this code is of no use until it is changed.
func (c Code) Permanent() bool {
	switch c {
	case CodeNotFound, CodeExists, CodeInvalid, CodeOutOfRange, CodeExhausted:
		return true
	}
	return false
}

// Error makes an error of the sentinel that c names, with the message that the error had in the process it came from.
func (c Code) Error(message string) error {
	for _, s := range sentinels {
		if s.code == c {
			return recalledError{sentinel: s.err, message: message}
		}
	}
	return fmt.Errorf("%w: %s (code %s is not known here; use the newer program)", ErrUnavailable, message, Quote(string(c)))
}

// recalledError is an error that was written down: it reads as it did, and is what it was.
type recalledError struct {
	sentinel error
	message  string
}

func (r recalledError) Error() string {
	if strings.Contains(r.message, r.sentinel.Error()) {
		return r.message
	}
	return r.sentinel.Error() + ": " + r.message
}

func (r recalledError) Unwrap() error { return r.sentinel }
