// Package check compares what a call returned with what a test expects, in one line each.
package check

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

// OK ends the test if there is an error.
func OK(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Report marks the test as failed if there is an error, and goes on.
func Report(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// Got returns the value of a call, and ends the test if the call failed:
//
//	data := check.Got(os.ReadFile(path))(t)
func Got[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		OK(t, err)
		return value
	}
}

// Same marks the test as failed unless both are equal.
func Same[T any](t testing.TB, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// ErrorOf returns the error of a call, without its value.
func ErrorOf[T any](_ T, err error) error { return err }

// Fails marks the test as failed unless the error is of that kind, any if it is nil, and its message has all of the words.
func Fails(t testing.TB, err, kind error, words ...string) {
	t.Helper()
	if err == nil || kind != nil && !errors.Is(err, kind) {
		t.Errorf("got the error %v, want %v", err, kind)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q is not in: %v", word, err)
		}
	}
}
