package backend

import (
	"cmp"
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

// Codes are all that there are.
func Codes() (all []Code) {
	for _, s := range sentinels {
		all = append(all, s.code)
	}
	return all
}

// FindCode names the sentinel that err is, if it is one.
func FindCode(err error) Code {
	for _, s := range sentinels {
		if errors.Is(err, s.err) {
			return s.code
		}
	}
	return ""
}

// CodeOf takes what is no sentinel for a storage that fails, which is Unavailable.
func CodeOf(err error) Code { return cmp.Or(FindCode(err), CodeUnavailable) }

// MessageOf leaves out the stack that a panic below has left in a message: it is for the log, and not for a caller.
func MessageOf(err error) string {
	message, _, _ := strings.Cut(err.Error(), "\ngoroutine ")
	return message
}

// Permanent says whether repeating a request that failed with this code is of no use until it is changed.
func (c Code) Permanent() bool {
	for _, s := range sentinels {
		if s.code == c {
			return s.permanent
		}
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
