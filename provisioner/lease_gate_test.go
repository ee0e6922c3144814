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

func TestGate_CallEndsWithItsTermOrItsCaller(t *testing.T) {
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
		synctest.Wait()
		if call.Err() == nil {
			t.Error("a call goes on without the Lease")
		}
		if lets(&g) {
			t.Error("another is let through without the Lease")
		}
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

func TestGate_ClosesWhenNoCallRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		g.open(t.Context())
		_, doneOne := entered(t, t.Context(), &g)
		_, doneOther := entered(t, t.Context(), &g)
		shut := make(chan struct{})
		go func() { g.shut(); close(shut) }()
		for running, done := range []func(){doneOne, doneOther} {
			synctest.Wait()
			select {
			case <-shut:
				t.Errorf("it is shut while %d calls run", 2-running)
			default:
			}
			if lets(&g) {
				t.Error("another call is admitted before it ends")
			}
			done()
		}
		<-shut
	})
}

func TestGate_LeaseIsKeptUntilNoCallRuns(t *testing.T) {
	s := newServer(t, quietClient())
	p := s.made()
	p.gate.shut()
	synctest.Test(t, func(t *testing.T) {
		term, lose := context.WithCancel(t.Context())
		worked := make(chan struct{})
		go func() { p.work(term); close(worked) }()
		synctest.Wait()
		call, done := entered(t, t.Context(), &p.gate)
		lose()
		synctest.Wait()
		select {
		case <-worked:
			t.Error("the work has ended, and the Lease can be another's, while a call runs")
		default:
		}
		if call.Err() == nil {
			t.Error("a call goes on when the term is over")
		}
		done()
		<-worked
	})
}
