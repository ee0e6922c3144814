package provisioner

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/mortal"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// life is one process, which dies at a step.
type life struct {
	*mortal.Process
	*Provisioner
}

func (a *api) life(s *server, diesAt int) life {
	a.t.Helper()
	process, config := mortal.New(diesAt), s.config
	config.Client = kubernetes.NewForConfigOrDie(process.Client(a.config))
	return life{process, check.Got(New(config))(a.t)}
}

// live lives until death or the end that the test gives it.
func (l life) live(t *testing.T, end <-chan struct{}) {
	t.Helper()
	ctx, kill := context.WithCancel(context.Background())
	defer kill()
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	select {
	case <-l.Died():
	case <-end:
	}
	kill()
	check.Report(t, <-ended)
}

// TestKill_AtAnyStepLeaksNothing makes and deletes a claim, with a process that dies at each step in turn and
// one that comes after it. In every second life the user deletes the claim while no process runs.
func TestKill_AtAnyStepLeaksNothing(t *testing.T) {
	hostfs.NotInGate(t, "has a Lease of a second in real time")
	a := realServer(t)
	s := newServer(t, a.client)
	s.config.Lease = time.Second
	class := a.class(s.config.Name, nil)
	step, lastLife := 0, false
	for !lastLife {
		step++
		for _, deleted := range []bool{false, true} {
			name := fmt.Sprintf("data-%d-%v", step, deleted)
			passed := t.Run(name, func(t *testing.T) { lastLife = !a.in(t).dieAt(s, class, name, step, deleted) })
			if !passed {
				return
			}
		}
	}
	if step < 8 {
		t.Errorf("only %d steps were found", step)
	}
}

// dieAt returns false if the process got through before it came to the step.
func (a *api) dieAt(s *server, class, name string, step int, deleted bool) bool {
	before, after := a.life(s, step), a.life(s, 0) // both are made before any client is at work
	s.disk.hook(func(_ context.Context, call string) error { return before.Step("the disk: " + call) })
	a.claim(name, class, s.config.Name)
	through := make(chan struct{})
	go func() {
		defer close(through)
		a.useUp(name, s.config.Name, before.Died())
	}()
	before.live(a.t, through)
	<-through
	_, last := before.Steps()
	a.t.Logf("it died at step %d: %s", step, last)
	s.disk.hook(nil)
	if deleted {
		a.removeClaim(name)
	}
	s.running = after.Provisioner
	end := make(chan struct{})
	var living sync.WaitGroup
	living.Go(func() { after.live(a.t, end) })
	defer living.Wait()
	defer close(end)
	a.useUpRest(name)
	a.nothingLeft(s)
	return before.IsDead()
}

// in is the same for a test within a test.
func (a *api) in(t *testing.T) *api {
	here := *a
	here.t = t
	return &here
}

// useUp deletes a claim once it is bound, and waits until its PersistentVolume is gone. It returns false if the process dies first.
func (a *api) useUp(name, provisioner string, died <-chan struct{}) bool {
	if !a.waitFor(died, func() bool { return a.isBound(name) }) {
		return false
	}
	check.Report(a.t, a.client.CoreV1().PersistentVolumeClaims(a.namespace).Delete(context.Background(), name, metav1.DeleteOptions{}))
	return a.waitFor(died, func() bool { return len(a.persistentVolumes(provisioner)) == 0 })
}

// useUpRest deletes a claim that may be left of a process that died, once the next has bound it.
func (a *api) useUpRest(name string) {
	a.t.Helper()
	if a.hasClaim(name) {
		a.bound(name)
		a.removeClaim(name)
	}
}

// waitFor returns false if the process dies first.
func (a *api) waitFor(died <-chan struct{}, is func() bool) bool {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-died:
			return false
		}
	}
	return true
}

func (a *api) hasClaim(name string) bool {
	claims := a.client.CoreV1().PersistentVolumeClaims(a.namespace)
	all := check.Got(claims.List(a.t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name}))(a.t)
	return len(all.Items) > 0 && all.Items[0].DeletionTimestamp == nil
}

func (a *api) removeClaim(name string) {
	a.t.Helper()
	if a.hasClaim(name) {
		a.deleteClaim(name)
	}
	a.claimGone(name)
}

func (a *api) claimGone(name string) {
	a.t.Helper()
	wait.Until(a.t, "the claim is gone", func() bool {
		_, err := a.client.CoreV1().PersistentVolumeClaims(a.namespace).Get(a.t.Context(), name, metav1.GetOptions{})
		return err != nil
	})
}

// TestKill_EveryRequestThatFailsOnceIsRetried is the same with a process that lives on.
func TestKill_EveryRequestThatFailsOnceIsRetried(t *testing.T) {
	a := realServer(t)
	var failed sync.Map
	once := func(what string) error {
		if _, again := failed.LoadOrStore(what, true); !again {
			return fmt.Errorf("%w: %s fails once", backend.ErrUnavailable, what)
		}
		return nil
	}
	s := newServer(t, a.tap(once))
	s.disk.hook(func(_ context.Context, call string) error { return once(call) })
	class := a.class(s.config.Name, nil)
	s.start()
	a.claim("data", class, s.config.Name)
	a.bound("data")
	a.deleteClaim("data")
	a.nothingLeft(s)
	count := 0
	failed.Range(func(what, _ any) bool { t.Log(what); count++; return true })
	if count < 12 {
		t.Errorf("only %d requests were made", count)
	}
}

// tap returns a client whose requests are tapped.
func (a *api) tap(do func(what string) error) kubernetes.Interface {
	config := rest.CopyConfig(a.config)
	config.Wrap(func(base http.RoundTripper) http.RoundTripper { return tapped{base, do} })
	return kubernetes.NewForConfigOrDie(config)
}

// tapped does something before each request is sent and after it was answered, and fails it when that fails.
type tapped struct {
	base http.RoundTripper
	do   func(what string) error
}

func (t tapped) RoundTrip(r *http.Request) (*http.Response, error) {
	what := r.Method + " " + r.URL.Path
	if err := t.do("before " + what); err != nil {
		return nil, err
	}
	answer, err := t.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if err := t.do("after " + what); err != nil {
		return nil, errors.Join(err, answer.Body.Close())
	}
	return answer, nil
}
