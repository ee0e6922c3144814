package backend

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
)

// Code names a sentinel, for errors that are passed to other processes in objects.
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

// sentinels maps codes to errors. ErrBusy is first, since it may wrap the error of an earlier attempt.
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

// CodeOf returns the code of the sentinel that err wraps, or Unavailable.
func CodeOf(err error) Code { return cmp.Or(FindCode(err), CodeUnavailable) }

// MessageOf returns the message of an error without the stack of a panic, which belongs into the log.
func MessageOf(err error) string {
	message, _, _ := strings.Cut(err.Error(), "\ngoroutine ")
	return message
}

// Permanent returns whether a request that failed with this code fails again if repeated.
func (c Code) Permanent() bool {
	for _, s := range sentinels {
		if s.code == c {
			return s.permanent
		}
	}
	return false
}

// Error returns an error that wraps the sentinel of c and has the message of the other process.
func (c Code) Error(message string) error {
	for _, s := range sentinels {
		if s.code == c {
			return recalledError{sentinel: s.err, message: message}
		}
	}
	return fmt.Errorf("%w: %s (code %s is not known here; use the newer program)", ErrUnavailable, message, Quote(string(c)))
}

// recalledError is an error that another process reported: it has the same message and sentinel.
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
