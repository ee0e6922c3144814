package kube

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordination "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestStandby_ALeaseIsHeldUntilItRunsOut(t *testing.T) {
	now := time.Unix(1000, 0)
	lease := func(holder string, renewed time.Time) *coordination.Lease {
		seconds, at := int32(30), metav1.NewMicroTime(renewed)
		return &coordination.Lease{Spec: coordination.LeaseSpec{HolderIdentity: &holder, RenewTime: &at, LeaseDurationSeconds: &seconds}}
	}
	for name, test := range map[string]struct {
		lease *coordination.Lease
		held  bool
	}{
		"just renewed":      {lease("me", now), true},
		"about to run out":  {lease("me", now.Add(-29*time.Second)), true},
		"run out":           {lease("me", now.Add(-30*time.Second)), false},
		"given up":          {lease("", now), false},
		"without a renewal": {&coordination.Lease{}, false},
	} {
		if got := heldFor(test.lease, now) > 0; got != test.held {
			t.Errorf("%s: held is %v", name, got)
		}
	}
}

func TestStandby_WorkEndsWhenTheLeaseIsTakenAndWaitsUntilItIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var left atomic.Int64
		held := func() time.Duration { return time.Duration(left.Load()) }
		changed, ended := make(chan struct{}, 1), make(chan error, 1)
		go func() {
			ended <- runWhileFree(t.Context(), changed, held, func(ctx context.Context) error {
				<-ctx.Done()
				return nil
			})
		}()
		changed <- struct{}{} // of another Lease
		synctest.Wait()
		if len(ended) > 0 {
			t.Fatal("it ended while the Lease was free")
		}
		left.Store(int64(time.Minute))
		changed <- struct{}{}
		check.Report(t, <-ended)
		go func() {
			<-time.After(time.Second)
			left.Store(0)
			changed <- struct{}{}
		}()
		begun := time.Now()
		if !waitUntilFree(t.Context(), changed, held) || time.Since(begun) != time.Second {
			t.Errorf("it waited for %s", time.Since(begun))
		}
		failure := errors.New("it fails")
		if err := runWhileFree(t.Context(), changed, held, func(context.Context) error { return failure }); !errors.Is(err, failure) {
			t.Errorf("got %v", err)
		}
	})
}
