package kube

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/miniapi"
)

func lease(client kubernetes.Interface, holder string) Lease {
	return Lease{Client: client.CoordinationV1(), Namespace: "ours", Name: "work", Holder: holder, Lasts: 15 * time.Second}
}

// holderOf returns the holder of the Lease, or "" if it was released.
func holderOf(t *testing.T, client kubernetes.Interface) string {
	t.Helper()
	l := check.Got(client.CoordinationV1().Leases("ours").Get(t.Context(), "work", metav1.GetOptions{}))(t)
	return *l.Spec.HolderIdentity
}

func TestLead_LeaseIsReleasedWhenTheWorkEndsAndAnotherContinues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := kubernetes.NewForConfigOrDie(miniapi.New(t).Config())
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		begun, stopped, ending, ended := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan error, 1)
		go func() {
			ended <- lease(client, "one").Lead(ctx, func(ctx context.Context) error {
				close(begun)
				<-ctx.Done()
				close(stopped)
				<-ending
				return nil
			})
		}()
		<-begun

		next, nextEnds := context.WithCancel(t.Context())
		defer nextEnds()
		other, leading, standing := lease(client, "two"), make(chan struct{}), make(chan string, 1)
		other.Standby = func(holder string) { standing <- holder }
		nextEnded := make(chan error, 1)
		go func() {
			nextEnded <- other.Lead(next, func(ctx context.Context) error {
				close(leading)
				<-ctx.Done()
				return nil
			})
		}()
		if holder := <-standing; holder != "one" {
			t.Errorf("it stands by for %s", holder)
		}

		stop()
		<-stopped
		select {
		case <-leading:
			t.Error("the other leads before the work has ended")
		default:
		}
		if holder := holderOf(t, client); holder != "one" {
			t.Errorf("%q holds the Lease before the work has ended", holder)
		}
		close(ending)
		check.Report(t, <-ended)
		<-leading
		nextEnds()
		check.Report(t, <-nextEnded)
		if holder := holderOf(t, client); holder != "" {
			t.Errorf("%q holds the Lease after all have ended", holder)
		}
	})
}

func TestLead_CandidateThatNeverLedEndsWithoutWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := kubernetes.NewForConfigOrDie(miniapi.New(t).Config())
		err := lease(client, "one").Lead(t.Context(), func(context.Context) error {
			ctx, stop := context.WithCancel(t.Context())
			waiting := lease(client, "two")
			waiting.Standby = func(string) { stop() }
			return waiting.Lead(ctx, func(context.Context) error { return errors.New("two work at once") })
		})
		if !errors.Is(err, ErrLeaseLost) { // its work returned by itself
			t.Error(err)
		}
	})
}

func TestLead_LostLeaseEndsTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := miniapi.New(t)
		err := lease(kubernetes.NewForConfigOrDie(api.Config()), "one").Lead(t.Context(), func(ctx context.Context) error {
			api.Close()
			<-ctx.Done()
			return nil
		})
		if !errors.Is(err, ErrLeaseLost) {
			t.Errorf("got %v", err)
		}
	})
}

func TestLead_ReturnsTheErrorOfTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := kubernetes.NewForConfigOrDie(miniapi.New(t).Config())
		broken := errors.New("broken")
		if err := lease(client, "one").Lead(t.Context(), func(context.Context) error { return broken }); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
		if holder := holderOf(t, client); holder != "" {
			t.Errorf("%q holds the Lease", holder)
		}
	})
}

// An elector that could not renew the Lease in time gives it back before it ends the work.
func TestLead_LeaseIsNotGivenBackBeforeTheWorkHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := kubernetes.NewForConfigOrDie(miniapi.New(t).Config())
		ended := make(chan struct{})
		lock := &heldLock{lease(client, "one").lock(), ended}
		check.OK(t, lock.Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "one", LeaseDurationSeconds: 1}))
		given := resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1}
		if err := lock.Update(t.Context(), given); !errors.Is(err, errWorking) || holderOf(t, client) != "one" {
			t.Errorf("during the work: %v, and %q holds it", err, holderOf(t, client))
		}
		close(ended)
		if err := lock.Update(t.Context(), given); err != nil || holderOf(t, client) != "" {
			t.Errorf("after the work: %v, and %q holds it", err, holderOf(t, client))
		}
	})
}
