package provisioner

import (
	"context"
	"testing"
	"testing/synctest"
)

// entered is a call that has been let through.
func entered(t *testing.T, ctx context.Context, g *gate) (context.Context, func()) {
	t.Helper()
	inTerm, done, open := g.enter(ctx)
	if !open {
		t.Fatal("the gate is shut")
	}
	return inTerm, done
}

// lets says whether another call would be let through.
func lets(g *gate) bool {
	_, done, open := g.enter(context.Background())
	if open {
		done()
	}
	return open || g.isOpen()
}

func TestGate_CallEndsWithItsCallerAndNotWithTheTermBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		term, lose := context.WithCancel(t.Context())
		g.open(term)
		caller, leave := context.WithCancel(t.Context())
		left, doneLeft := entered(t, caller, &g)
		ended, doneEnded := entered(t, t.Context(), &g)
		call, done := entered(t, t.Context(), &g)
		leave()
		doneEnded()
		synctest.Wait()
		if left.Err() == nil || ended.Err() == nil || call.Err() != nil {
			t.Errorf("one whose caller has left: %v, one that is done: %v, another: %v", left.Err(), ended.Err(), call.Err())
		}
		lose()
		doneLeft()
		done()
		g.shut()

		// The term of one that is late to end is not that of the next.
		next, end := context.WithCancel(t.Context())
		defer end()
		g.open(next)
		call, done = entered(t, t.Context(), &g)
		synctest.Wait()
		if call.Err() != nil || !g.isOpen() {
			t.Errorf("in the next term a call ends with %v", call.Err())
		}
		done()
	})
}

func TestGate_LeaseIsKeptUntilNoCallRuns(t *testing.T) {
	_, p := quiet(t)
	p.gate.shut()
	synctest.Test(t, func(t *testing.T) {
		term, lose := context.WithCancel(t.Context())
		worked := make(chan struct{})
		go func() { p.work(term); close(worked) }()
		synctest.Wait()
		one, doneOne := entered(t, t.Context(), &p.gate)
		other, doneOther := entered(t, t.Context(), &p.gate)
		lose()
		for running, done := range []func(){doneOne, doneOther} {
			synctest.Wait()
			select {
			case <-worked:
				t.Errorf("the work has ended, and the Lease can be another's, while %d calls run", 2-running)
			default:
			}
			if one.Err() == nil || other.Err() == nil || lets(&p.gate) {
				t.Error("a call goes on, or another is let through, when the term is over")
			}
			done()
		}
		<-worked
	})
}
