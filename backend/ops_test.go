package backend

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestOperations_RunOneAtATimePerID(t *testing.T) {
	var ops Operations
	var running, most atomic.Int32
	done := make(chan error)
	const callers = 32
	for range callers {
		go func() {
			_, err := Do(t.Context(), &ops, "a", "test", func(context.Context) (any, error) {
				most.Store(max(most.Load(), running.Add(1)))
				running.Add(-1)
				return nil, nil
			})
			done <- err
		}()
	}
	for range callers {
		check.Report(t, <-done)
	}
	if most.Load() != 1 {
		t.Errorf("%d operations ran on one ID at once", most.Load())
	}
}

func TestOperations_OnOtherIDsDoNotWait(t *testing.T) {
	var ops Operations
	_, err := Do(t.Context(), &ops, "a", "outer", func(ctx context.Context) (any, error) {
		return Do(ctx, &ops, "b", "inner", func(context.Context) (any, error) { return nil, nil })
	})
	check.Report(t, err)
}

func TestOperation_OutlivesItsCallerAndReportsItsProgress(t *testing.T) {
	var ops Operations
	_, err := Do(t.Context(), &ops, "a", "create", func(context.Context) (any, error) { return nil, errors.New("disk on fire") })
	if err == nil {
		t.Fatal("the operation's error was lost")
	}
	release, started := make(chan struct{}), make(chan struct{})
	caller, leave := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := Do(caller, &ops, "a", "create", func(ctx context.Context) (any, error) {
			Progressf(ctx, "%d of 9 bytes are copied", 7)
			close(started)
			<-release
			return nil, ctx.Err()
		})
		left <- err
	}()
	<-started
	leave()
	if err := <-left; !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "create of a") || !strings.Contains(err.Error(), "(7 of 9 bytes are copied)") ||
		!strings.Contains(err.Error(), "disk on fire") {
		t.Errorf("the caller that left got %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Do(gone, &ops, "a", "delete", func(context.Context) (any, error) { return nil, nil }); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "create of a") {
		t.Errorf("a second caller got %v", err)
	}
	if n, age := ops.InFlight(); n != 1 || age <= 0 {
		t.Errorf("%d operations are in flight, the oldest for %s", n, age)
	}
	close(release)
	check.OK(t, ops.Wait(t.Context()))
	if _, err := Do(t.Context(), &ops, "a", "create", func(context.Context) (any, error) { return nil, nil }); err != nil {
		t.Error(err)
	}
}

func TestOperation_PanicIsAnErrorAndReleasesTheID(t *testing.T) {
	var ops Operations
	_, err := Do(t.Context(), &ops, "a", "create", func(context.Context) (any, error) { panic("oops") })
	if err == nil || !strings.Contains(err.Error(), "oops") {
		t.Errorf("got %v", err)
	}
	if n, _ := ops.InFlight(); n != 0 {
		t.Errorf("%d operations are in flight", n)
	}
}
