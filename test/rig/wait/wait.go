// Package wait is how tests wait: for what a system shows, with one patience for all of them, and for objects of an API.
// In a bubble of testing/synctest the time that it waits is virtual.
package wait

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// patience is far more than what anything takes, since it is spent only where a test fails.
	patience = 3 * time.Minute

	// The longer it has waited the seldomer it asks: each answer costs a server.
	first, last = 2 * time.Millisecond, 200 * time.Millisecond
)

// scale is HOLDFAST_TIME_SCALE, by which all patience is multiplied where the machine is slow, as with the race detector.
func scale(t testing.TB) int {
	t.Helper()
	given := os.Getenv("HOLDFAST_TIME_SCALE")
	if given == "" {
		return 1
	}
	n, err := strconv.Atoi(given)
	if err != nil || n < 1 {
		t.Fatalf("HOLDFAST_TIME_SCALE=%q: give a number from 1 on", given)
	}
	return n
}

// Until waits until something is so.
func Until(t testing.TB, what string, so func() bool) {
	t.Helper()
	For(t, what, func() error {
		if !so() {
			return errNot
		}
		return nil
	})
}

var errNot = fmt.Errorf("it is not so")

// For waits until ask returns no error. Time in which the machine did not let the test run is not counted.
func For(t testing.TB, what string, ask func() error) {
	t.Helper()
	left := time.Duration(scale(t)) * patience
	for pause := first; ; pause = min(pause*5/4, last) {
		begun := time.Now()
		err := ask()
		if err == nil {
			return
		}
		if left -= time.Since(begun) + pause; left <= 0 {
			t.Fatalf("%s did not come: %v", what, err)
		}
		time.Sleep(pause) //nolint:forbidigo // all others wait with this; it takes longer where the machine is busy
	}
}

// Never fails if something is so within that time, at the end of which it returns. It is for bubbles, where it is exact.
func Never(t testing.TB, what string, within time.Duration, so func() bool) {
	t.Helper()
	for end := time.Now().Add(within); time.Now().Before(end); {
		if so() {
			t.Fatalf("%s came", what)
		}
		time.Sleep(10 * first) //nolint:forbidigo // as above
	}
}

// Get returns an object, nil if there is none. Another error, as of a server that is busy, is not taken for that.
func Get[T any](t testing.TB, get func(context.Context, string, metav1.GetOptions) (*T, error), name string) (found *T) {
	t.Helper()
	For(t, "an answer for "+name, func() (err error) {
		found, err = get(context.WithoutCancel(t.Context()), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			found, err = nil, nil
		}
		return err
	})
	return found
}

// Put creates an object and sets its status, as its controller does.
func Put[O metav1.Object](t testing.TB, o O, client interface {
	Create(context.Context, O, metav1.CreateOptions) (O, error)
	UpdateStatus(context.Context, O, metav1.UpdateOptions) (O, error)
},
) O {
	t.Helper()
	made, err := client.Create(t.Context(), o, metav1.CreateOptions{})
	if err == nil {
		o.SetResourceVersion(made.GetResourceVersion())
		made, err = client.UpdateStatus(t.Context(), o, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatalf("%T %s: %v", o, o.GetName(), err)
	}
	return made
}

// Modify reads an object, changes it and writes it with write, again after a conflict.
func Modify[T any](t testing.TB, get func(context.Context, string, metav1.GetOptions) (*T, error),
	write func(context.Context, *T, metav1.UpdateOptions) (*T, error), name string, change func(*T),
) (written *T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	For(t, "the change of "+name, func() error {
		o, err := get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(o)
		written, err = write(ctx, o, metav1.UpdateOptions{})
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) || apierrors.IsNotFound(err) {
			t.Fatalf("the change of %s: %v", name, err)
		}
		return err
	})
	return written
}
