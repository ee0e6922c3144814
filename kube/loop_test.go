package kube

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/holdfast-storage/holdfast/test/rig/alongside"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/miniapi"
)

// started runs a loop until the test ends.
func started[K comparable](t *testing.T, c LoopConfig[K]) *Loop[K] {
	t.Helper()
	if c.Log == nil {
		c.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	l := check.Got(NewLoop(c))(t)
	run(t, l)
	return l
}

func run[K comparable](t *testing.T, l *Loop[K]) {
	ctx, cancel := context.WithCancel(context.Background())
	alongside.Run(ctx, t, cancel, l.Run)
}

func TestLoop_WithoutAFunctionIsRefused(t *testing.T) {
	if _, err := NewLoop(LoopConfig[string]{}); err == nil {
		t.Error("it was taken")
	}
}

func TestLoop_KeyIsReconciledByOneWorkerAtATimeAndNoChangeIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at, most, runs atomic.Int32
		l := started(t, LoopConfig[string]{Workers: 4, Reconcile: func(context.Context, string) (time.Duration, error) {
			most.Store(max(most.Load(), at.Add(1)))
			<-time.After(time.Second)
			at.Add(-1)
			runs.Add(1)
			return 0, nil
		}})
		l.Enqueue("one")
		synctest.Wait()
		for range 10 {
			l.Enqueue("one") // while it runs
		}
		<-time.After(time.Minute)
		if most.Load() != 1 || runs.Load() != 2 {
			t.Errorf("%d at once, %d runs; want 1 and 2", most.Load(), runs.Load())
		}
	})
}

func TestLoop_AReconcileThatTakesLongDoesNotHoldUpOthersAndIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow, most, quick atomic.Int32
		release := make(chan struct{})
		l := check.Got(NewLoop(LoopConfig[int]{Workers: 2, SlowAfter: time.Second, Reconcile: func(_ context.Context, key int) (time.Duration, error) {
			if key < 5 {
				most.Store(max(most.Load(), slow.Add(1)))
				defer slow.Add(-1)
				<-release
				return 0, nil
			}
			quick.Add(1)
			return 0, nil
		}}))(t)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = l.Run(ctx) }()
		for key := range 6 {
			l.Enqueue(key)
		}
		synctest.Wait()
		if most.Load() != 2 {
			t.Errorf("%d at once, want as many as there are workers", most.Load())
		}
		<-time.After(4 * time.Second)
		if slow.Load() != 5 || quick.Load() != 1 {
			t.Errorf("%d slow ones run, and %d quick ones were done; want 5 and 1", slow.Load(), quick.Load())
		}
		cancel()
		synctest.Wait()
		select {
		case <-ended:
			t.Error("it ended before its reconciles")
		default:
		}
		close(release)
		<-ended
		if slow.Load() != 0 {
			t.Errorf("%d still run", slow.Load())
		}
	})
}

func TestLoop_FailureIsRetriedWithBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		l := started(t, LoopConfig[string]{
			RetryFirst: time.Second, RetryLast: 8 * time.Second,
			Reconcile: func(context.Context, string) (time.Duration, error) {
				runs.Add(1)
				return 0, errors.New("not yet")
			},
		})
		l.Enqueue("one")
		for _, want := range []struct {
			after time.Duration
			runs  int32
		}{{0, 1}, {1 * time.Second, 2}, {2 * time.Second, 3}, {4 * time.Second, 4}, {8 * time.Second, 5}, {8 * time.Second, 6}} {
			<-time.After(want.after)
			synctest.Wait()
			if got := runs.Load(); got != want.runs {
				t.Errorf("after %s more: %d runs, want %d", want.after, got, want.runs)
			}
		}
	})
}

func TestLoop_PanicIsAFailureAndOthersContinue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		var mu sync.Mutex
		seen := map[string]int{}
		l := started(t, LoopConfig[string]{
			Log: slog.New(slog.NewTextHandler(&log, nil)),
			Reconcile: func(_ context.Context, key string) (time.Duration, error) {
				mu.Lock()
				defer mu.Unlock()
				seen[key]++
				if key == "bad" && seen[key] == 1 {
					panic("index out of range")
				}
				return 0, nil
			},
		})
		l.Enqueue("bad")
		l.Enqueue("good")
		<-time.After(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if seen["bad"] != 2 || seen["good"] != 1 {
			t.Errorf("runs: %v; want 2 of bad and 1 of good", seen)
		}
		if !strings.Contains(log.String(), "index out of range") || !strings.Contains(log.String(), "loop_test.go") {
			t.Errorf("the log does not say what and where: %s", log.String())
		}
	})
}

func TestLoop_RunCanRequestAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		l := started(t, LoopConfig[string]{Reconcile: func(context.Context, string) (time.Duration, error) {
			if runs.Add(1) < 3 {
				return time.Minute, nil
			}
			return 0, nil
		}})
		l.Enqueue("one")
		<-time.After(time.Hour)
		if runs.Load() != 3 {
			t.Errorf("%d runs, want 3", runs.Load())
		}
		l.EnqueueAfter("one", time.Minute)
		synctest.Wait()
		if runs.Load() != 3 {
			t.Error("it ran before its time")
		}
		<-time.After(2 * time.Minute)
		if runs.Load() != 4 {
			t.Error("it did not run after its time")
		}
	})
}

func TestLoop_SuccessAndARetryResetTheBackoff(t *testing.T) {
	for name, c := range map[string]struct {
		fails  int32 // of the runs after an hour of failures
		again  func(*Loop[string])
		within time.Duration
		runs   int32
	}{
		"after a success": {1, func(l *Loop[string]) { l.Enqueue("one") }, 1500 * time.Millisecond, 2},
		// At once, after one second and after two more.
		"a retry": {1 << 20, func(l *Loop[string]) { l.Retry("one") }, 3500 * time.Millisecond, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var runs, failing atomic.Int32
				failing.Store(max(c.fails, 5))
				l := started(t, LoopConfig[string]{RetryFirst: time.Second, RetryLast: time.Hour, Reconcile: func(context.Context, string) (time.Duration, error) {
					runs.Add(1)
					if failing.Add(-1) >= 0 {
						return 0, errors.New("not yet")
					}
					return 0, nil
				}})
				l.Enqueue("one")
				<-time.After(time.Hour)
				failing.Store(c.fails)
				runs.Store(0)
				c.again(l)
				<-time.After(c.within)
				if runs.Load() != c.runs {
					t.Errorf("%d runs within %s, want %d", runs.Load(), c.within, c.runs)
				}
			})
		})
	}
}

func TestLoop_WhatHasNotBegunWhenItEndsIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		l := check.Got(NewLoop(LoopConfig[int]{Reconcile: func(ctx context.Context, _ int) (time.Duration, error) {
			runs.Add(1)
			<-ctx.Done()
			return 0, nil
		}}))(t)
		for i := range 10 {
			l.Enqueue(i)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.Run(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil || runs.Load() != 1 {
			t.Errorf("%d of 10 keys ran, %v, want the one that had begun", runs.Load(), err)
		}
	})
}

func TestLoop_ReactsToRelevantChangesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := kubernetes.NewForConfigOrDie(miniapi.New(t).Config())
		pods := client.CoreV1().Pods("ns")
		write := func(name, label string) *core.Pod {
			return &core.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"of": label}}}
		}
		ran := make(chan string, 100)
		l := check.Got(NewLoop(LoopConfig[string]{Reconcile: func(_ context.Context, key string) (time.Duration, error) {
			ran <- key
			return 0, nil
		}}))(t)
		factory := informers.NewSharedInformerFactory(client, 0)
		owner := func(object any) []string { return []string{object.(*core.Pod).Labels["of"]} }
		relabelled := func(old, now any) bool { return owner(old)[0] != owner(now)[0] }
		check.OK(t, l.WatchChanges(factory.Core().V1().Pods().Informer(), owner, relabelled))
		check.Got(pods.Create(t.Context(), write("early", "early"), metav1.CreateOptions{}))(t)
		factory.StartWithContext(t.Context())
		run(t, l)
		expect := func(what string, want ...string) {
			t.Helper()
			late := time.After(10 * time.Second)
			for range want {
				select {
				case got := <-ran:
					if got != want[0] && got != want[len(want)-1] {
						t.Errorf("%s: %s ran, want %q", what, got, want)
					}
				case <-late:
					t.Fatalf("%s: %q did not run", what, want)
				}
			}
		}
		expect("what was there before", "early")
		check.Got(pods.Create(t.Context(), write("late", "late"), metav1.CreateOptions{}))(t)
		expect("what comes", "late")
		moved := write("late", "late")
		moved.Annotations = map[string]string{"a": "b"}
		if _, err := pods.Update(t.Context(), moved, metav1.UpdateOptions{}); err != nil { // is filtered out
			t.Fatal(err)
		}
		check.Got(pods.Update(t.Context(), write("late", "other"), metav1.UpdateOptions{}))(t)
		expect("what changes its owner", "late", "other")
		check.OK(t, pods.Delete(t.Context(), "late", metav1.DeleteOptions{}))
		expect("what goes", "other")
		synctest.Wait()
		if len(ran) > 0 {
			t.Errorf("%s ran without need", <-ran)
		}
	})
}

// counted counts the handlers of an informer.
type counted struct {
	cache.SharedIndexInformer
	handlers atomic.Int32
}

func (c *counted) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	c.handlers.Add(1)
	return c.SharedIndexInformer.AddEventHandler(h)
}

func (c *counted) RemoveEventHandler(h cache.ResourceEventHandlerRegistration) error {
	c.handlers.Add(-1)
	return c.SharedIndexInformer.RemoveEventHandler(h)
}

func TestLoop_ListensNoMoreWhenItHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := kubernetes.NewForConfigOrDie(miniapi.New(t).Config())
		informer := &counted{SharedIndexInformer: informers.NewSharedInformerFactory(client, 0).Core().V1().Pods().Informer()}
		l := check.Got(NewLoop(LoopConfig[string]{Reconcile: func(context.Context, string) (time.Duration, error) { return 0, nil }}))(t)
		for range 2 {
			check.OK(t, l.Watch(informer, func(any) []string { return nil }))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		check.OK(t, l.Run(ctx))
		if n := informer.handlers.Load(); n != 0 {
			t.Errorf("%d handlers of a loop that has ended are left", n)
		}
	})
}

func TestLoop_CancelledBeforeItsCachesAreFilledEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := check.Got(NewLoop(LoopConfig[string]{Reconcile: func(context.Context, string) (time.Duration, error) {
			t.Error("it ran without knowing what exists")
			return 0, nil
		}}))(t)
		informer := cache.NewSharedIndexInformer(&cache.ListWatch{}, &core.Pod{}, 0, nil) // never started
		check.OK(t, l.Watch(informer, func(any) []string { return nil }))
		l.Enqueue("one")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		check.Report(t, l.Run(ctx))
	})
}
