// Package check handles errors that a test does not expect, in one line each.
package check

import "testing"

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
