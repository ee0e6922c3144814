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

// life is one process, which dies at a step. What it does to the disk is one, too.
type life struct{ *mortal.Process }

func (l life) client(config *rest.Config) kubernetes.Interface {
	return kubernetes.NewForConfigOrDie(l.Client(config))
}

func (l life) onDisk(_ context.Context, call string) error { return l.Step("the disk: " + call) }

// run lives until death or the end that the test wants.
func (l life) run(t *testing.T, p *Provisioner, end <-chan struct{}) {
	t.Helper()
	ctx, kill := context.WithCancel(context.Background())
	defer kill()
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
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
			passed := t.Run(name, func(t *testing.T) {
				here := *a
				here.t = t
				lastLife = !here.dieAt(t, s, class, name, step, deleted)
			})
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
func (a *api) dieAt(t *testing.T, s *server, class, name string, step int, deleted bool) bool {
	before, after := life{mortal.New(step)}, life{mortal.New(0)}
	processes := map[life]*Provisioner{}
	for _, l := range []life{before, after} { // both are made before any client is at work
		config := s.config
		config.Client = l.client(a.config)
		p := check.Got(New(config))(t)
		processes[l] = p
	}
	s.disk.hook(before.onDisk)
	a.claim(name, class, s.config.Name)
	through := make(chan struct{})
	go func() {
		defer close(through)
		if !a.waitFor(before.Died(), func() bool { return a.isBound(name) }) {
			return
		}
		check.Report(t, a.client.CoreV1().PersistentVolumeClaims(a.namespace).Delete(context.Background(), name, metav1.DeleteOptions{}))
		a.waitFor(before.Died(), func() bool { return len(a.persistentVolumes(s.config.Name)) == 0 })
	}()
	before.run(t, processes[before], through)
	<-through
	_, last := before.Steps()
	t.Logf("it died at step %d: %s", step, last)
	s.disk.hook(nil)
	if deleted {
		a.removeClaim(t, name)
	}
	s.running = processes[after]
	end := make(chan struct{})
	var living sync.WaitGroup
	living.Go(func() { after.run(t, s.running, end) })
	defer living.Wait()
	defer close(end)
	if a.hasClaim(name) {
		a.bound(name)
		a.removeClaim(t, name)
	}
	a.nothingLeft(s)
	return before.IsDead()
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
	all := check.Got(a.client.CoreV1().PersistentVolumeClaims(a.namespace).List(a.t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name}))(a.t)
	return len(all.Items) > 0 && all.Items[0].DeletionTimestamp == nil
}

func (a *api) removeClaim(t *testing.T, name string) {
	t.Helper()
	if a.hasClaim(name) {
		a.deleteClaim(name)
	}
	wait.Until(a.t, "the claim is gone", func() bool {
		_, err := a.client.CoreV1().PersistentVolumeClaims(a.namespace).Get(t.Context(), name, metav1.GetOptions{})
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
	config := rest.CopyConfig(a.config)
	config.Wrap(func(base http.RoundTripper) http.RoundTripper { return tapped{base, once} })
	s := newServer(t, kubernetes.NewForConfigOrDie(config))
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
