package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/miniapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// testPool is a pool that can be served or not; nothing is served before run.
type testPool struct {
	trouble atomic.Pointer[string] // of Try
	runs    chan struct{}          // closed when it is served
	closed  atomic.Bool
}

func newTestPool(trouble string) *testPool {
	p := &testPool{runs: make(chan struct{})}
	if trouble != "" {
		p.trouble.Store(&trouble)
	}
	return p
}

func (p *testPool) Try(context.Context) error {
	if trouble := p.trouble.Load(); trouble != nil {
		return errors.New(*trouble)
	}
	return nil
}

func (p *testPool) Ready(context.Context) error { return errors.New("it is not connected") }

func (p *testPool) Close(context.Context) error { p.closed.Store(true); return nil }

func (p *testPool) run(ctx context.Context) error {
	close(p.runs)
	<-ctx.Done()
	return nil
}

func turnOf(client kubernetes.Interface, holder string, pool *testPool) *turn {
	return &turn{
		pool: pool, stopTimeout: time.Minute, log: slog.New(slog.DiscardHandler), tryEvery: 50 * time.Millisecond, triesFor: 2 * time.Second,
		lease: kube.Lease{Client: client.CoordinationV1(), Namespace: "ours", Name: "pool", Holder: holder, Lasts: time.Second},
	}
}

// beginTurn runs a turn until stop is called or the test ends, and gives its error.
func beginTurn(t *testing.T, u *turn, pool *testPool) (stop func(), ended <-chan error) {
	ctx, cancel := context.WithCancel(context.Background())
	result, over := make(chan error, 1), make(chan struct{})
	go func() { defer close(over); result <- u.run(ctx, []part{pool.run}) }()
	t.Cleanup(func() { cancel(); <-over })
	return cancel, result
}

func TestTurn_ProcessThatCouldServeThePoolIsReadyAndWaits(t *testing.T) {
	client := kubernetes.NewForConfigOrDie(miniapi.New(t).Config())
	first, second := newTestPool(""), newTestPool("no answer")
	one, two := turnOf(client, "one", first), turnOf(client, "two", second)
	stop, ended := beginTurn(t, one, first)
	<-first.runs
	if one.ready(t.Context()) == nil {
		t.Error("the process that serves the pool is ready, and the pool is not")
	}
	two.triesFor = time.Hour
	beginTurn(t, two, second)
	second.trouble.Store(nil)
	wait.For(t, "the readiness of the process that could serve the pool", func() error { return two.ready(t.Context()) })
	select {
	case <-second.runs:
		t.Fatal("two serve the pool")
	default:
	}
	stop()
	if err := <-ended; err != nil || !first.closed.Load() {
		t.Errorf("the first process ends with %v; its pool is closed: %t", err, first.closed.Load())
	}
	<-second.runs
	if two.ready(t.Context()) == nil {
		t.Error("the second process is ready, and its pool is not")
	}
}

func TestTurn_ProcessThatCouldNotServeThePoolEndsAndSaysWhy(t *testing.T) {
	client := kubernetes.NewForConfigOrDie(miniapi.New(t).Config())
	first, second := newTestPool(""), newTestPool("Ceph refuses client.b")
	one, two := turnOf(client, "one", first), turnOf(client, "two", second)
	_, firstEnded := beginTurn(t, one, first)
	<-first.runs
	two.reason = filepath.Join(t.TempDir(), "termination-log")
	check.OK(t, os.WriteFile(two.reason, nil, 0o600))
	_, ended := beginTurn(t, two, second)
	err := <-ended
	if err == nil || !strings.Contains(err.Error(), "Ceph refuses client.b") || !strings.Contains(err.Error(), "one, which serves it") {
		t.Errorf("it ends with %v", err)
	}
	if reason, readErr := os.ReadFile(two.reason); readErr != nil || string(reason) != err.Error() {
		t.Errorf("the status of its container says %q, %v", reason, readErr)
	}
	select {
	case <-second.runs:
		t.Error("it has served the pool")
	case err := <-firstEnded:
		t.Errorf("the first process ended: %v", err)
	default:
	}
}

// A process that was killed with its machine holds the Lease until that has expired.
func TestTurn_PoolThatNoProcessServesAnyMoreIsTakenAlsoWhileItCannotBeServed(t *testing.T) {
	client := kubernetes.NewForConfigOrDie(miniapi.New(t).Config())
	lease := &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: "pool"}, Spec: coordination.LeaseSpec{
		HolderIdentity: new("one"), LeaseDurationSeconds: new(int32(1)), AcquireTime: new(metav1.NowMicro()), RenewTime: new(metav1.NowMicro()),
	}}
	check.Got(client.CoordinationV1().Leases("ours").Create(t.Context(), lease, metav1.CreateOptions{}))(t)
	pool := newTestPool("Ceph refuses client.b")
	beginTurn(t, turnOf(client, "two", pool), pool)
	<-pool.runs // it says what is wrong itself
}
