package kube

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func pod(name string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "test", UID: "uid"},
		Status:     corev1.PodStatus{Phase: phase},
	}
}

func isRunning(pods []*corev1.Pod) (bool, error) {
	return len(pods) == 1 && pods[0].Status.Phase == corev1.PodRunning, nil
}

// waiting is a wait that has begun, and what it comes to.
type waiting struct {
	client *fake.Clientset
	ctx    context.Context
	cancel context.CancelCauseFunc
	ended  chan struct{}
	seen   []Object
	err    error
}

// wait begins to wait for a pod in a bubble, and returns when the wait is blocked.
func wait(t *testing.T, client *fake.Clientset, done func([]*corev1.Pod) (bool, error)) *waiting {
	t.Helper()
	w := &waiting{client: client, ended: make(chan struct{})}
	w.ctx, w.cancel = context.WithCancelCause(t.Context())
	go func() {
		defer close(w.ended)
		w.seen, w.err = await(w.ctx, client.CoreV1().Pods("test"), metav1.ListOptions{}, done)
	}()
	synctest.Wait()
	return w
}

func (w *waiting) isOver() bool {
	synctest.Wait()
	select {
	case <-w.ended:
		return true
	default:
		return false
	}
}

func TestAwait_TimedOutKeepsTheLastState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := wait(t, fake.NewClientset(pod("a", corev1.PodPending)), isRunning)
		late := errors.New("too late")
		w.cancel(late)
		if !w.isOver() || !errors.Is(w.err, late) || len(w.seen) != 1 || w.seen[0].GetName() != "a" {
			t.Errorf("over %v, error %v, seen %v", w.isOver(), w.err, w.seen)
		}
	})
}

func TestAwait_SurvivesAnAbsentAPIServerAndWatchesThatEnd(t *testing.T) {
	for name, broken := range map[string]func(*fake.Clientset, func() bool){
		"list": func(c *fake.Clientset, once func() bool) {
			c.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				return once(), nil, errors.New("connection refused")
			})
		},
		"watch": func(c *fake.Clientset, once func() bool) {
			c.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) {
				return once(), nil, errors.New("connection refused")
			})
		},
		"closed": func(c *fake.Clientset, once func() bool) {
			c.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) {
				return once(), watch.NewEmptyWatch(), nil
			})
		},
		"expired": func(c *fake.Clientset, once func() bool) {
			c.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) {
				events := watch.NewFakeWithChanSize(1, false)
				status := apierrors.NewResourceExpired("too old").Status()
				events.Error(&status)
				return once(), events, nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, fails := fake.NewClientset(), 2
				broken(client, func() bool { fails--; return fails >= 0 })
				w := wait(t, client, isRunning)
				if w.isOver() {
					t.Fatalf("it gave up: %v", w.err)
				}
				<-time.After(time.Minute)
				if _, err := client.CoreV1().Pods("test").Create(t.Context(), pod("a", corev1.PodRunning), metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				<-w.ended
				if w.err != nil || fails > 0 {
					t.Errorf("error %v, failures not met %d", w.err, fails)
				}
			})
		})
	}
}

func TestAwait_FailureReportsStateAndEvents(t *testing.T) {
	stuck := pod("stuck", corev1.PodPending)
	stuck.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "no node has room"}}
	stuck.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}}
	client := fake.NewClientset(stuck)
	client.PrependReactor("list", "events", func(action clienttesting.Action) (bool, runtime.Object, error) {
		of := action.(clienttesting.ListAction).GetListRestrictions().Fields
		if !of.Matches(fields.Set{"involvedObject.uid": string(stuck.UID)}) {
			return true, &corev1.EventList{}, nil
		}
		return true, &corev1.EventList{Items: []corev1.Event{{
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "stuck"},
			Type:           corev1.EventTypeWarning, Reason: "FailedMount", Message: "no such\ndevice", Count: 3,
		}}}, nil
	})
	failed := try(t, "TestX", func(t testing.TB) {
		s := &Space{Cluster: &Cluster{Client: client}, Namespace: "test", t: t}
		AwaitOne(s, client.CoreV1().Pods("test"), "stuck", "to be ready", func(*corev1.Pod) (bool, error) {
			return false, errors.New("hopeless")
		})
	})
	for _, want := range []string{
		"waiting for stuck to be ready: hopeless", "seen last: pod stuck: Pending",
		"PodScheduled False Unschedulable no node has room", `container main restarted 0 {"waiting":{"reason":"ContainerCreating"}}`,
		"3x Warning FailedMount pod/stuck: no such device",
	} {
		if !failed.failed || !strings.Contains(failed.said.String(), want) {
			t.Errorf("there is no %q in %s", want, failed.said.String())
		}
	}
}
