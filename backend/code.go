package backend

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
)

// Code is the name of a sentinel, for errors that another process reads from an object.
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

// sentinels pairs codes with errors. ErrBusy comes first, since it may wrap the error of an earlier attempt.
var sentinels = []struct {
	code      Code
	err       error
	permanent bool
}{
	{CodeBusy, ErrBusy, false},
	{CodeNotFound, ErrNotFound, true},
	{CodeExists, ErrExists, true},
	{CodeInvalid, ErrInvalid, true},
	{CodeOutOfRange, ErrOutOfRange, true},
	{CodeExhausted, ErrExhausted, true},
	{CodePrecondition, ErrPrecondition, false},
	{CodeUnavailable, ErrUnavailable, false},
}

// Codes returns all codes.
func Codes() (all []Code) {
	for _, s := range sentinels {
		all = append(all, s.code)
	}
	return all
}

// FindCode returns the code of the sentinel that err wraps, if any.
func FindCode(err error) Code {
	for _, s := range sentinels {
		if errors.Is(err, s.err) {
			return s.code
		}
	}
	return ""
}

// CodeOf returns Unavailable for an error that wraps no sentinel.
func CodeOf(err error) Code { return cmp.Or(FindCode(err), CodeUnavailable) }

// MessageOf removes the stack of a panic from a message: it belongs into the log, and callers do not need it.
func MessageOf(err error) string {
	message, _, _ := strings.Cut(err.Error(), "\ngoroutine ")
	return message
}

// Permanent says whether the same request will fail again with this code.
func (c Code) Permanent() bool {
	for _, s := range sentinels {
		if s.code == c {
			return s.permanent
		}
	}
	return false
}

// Error returns an error that wraps the sentinel of c, with the message from the original process.
func (c Code) Error(message string) error {
	for _, s := range sentinels {
		if s.code == c {
			return recalledError{sentinel: s.err, message: message}
		}
	}
	return fmt.Errorf("%w: %s (code %s is not known here; use the newer program)", ErrUnavailable, message, Quote(string(c)))
}

// recalledError is an error from another process, with the same message and sentinel.
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
