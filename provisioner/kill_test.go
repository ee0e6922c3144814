package provisioner

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// life is one process. It counts what it does to the API server and to the disk, and dies at a given step, before or
// after the step has its effect. What is dead does nothing any more.
type life struct {
	base http.RoundTripper

	mu     sync.Mutex
	steps  int
	diesAt int // 0: never
	died   chan struct{}
	dead   bool
	last   string
}

var errDead = errors.New("the process is dead")

func newLife(diesAt int) *life { return &life{diesAt: diesAt, died: make(chan struct{})} }

// step returns an error if the process is dead, or dies here.
func (l *life) step(what string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return errDead
	}
	l.steps++
	if l.steps == l.diesAt {
		l.dead, l.last = true, what
		close(l.died)
		return errDead
	}
	return nil
}

func (l *life) isDead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// RoundTrip counts what is written about claims and volumes.
func (l *life) RoundTrip(r *http.Request) (*http.Response, error) {
	counts := r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/leases") && !strings.Contains(r.URL.Path, "/events")
	what := r.Method + " " + r.URL.Path
	if counts {
		if err := l.step("before " + what); err != nil {
			return nil, err
		}
	} else if l.isDead() {
		return nil, errDead
	}
	answer, err := l.base.RoundTrip(r)
	if counts && err == nil {
		if err := l.step("after " + what); err != nil {
			return nil, errors.Join(err, answer.Body.Close())
		}
	}
	return answer, err
}

func (l *life) client(config *rest.Config) kubernetes.Interface {
	config = rest.CopyConfig(config)
	config.Wrap(func(base http.RoundTripper) http.RoundTripper { l.base = base; return l })
	return kubernetes.NewForConfigOrDie(config)
}

func (l *life) onDisk(_ context.Context, call string) error { return l.step("the disk: " + call) }

// run lives until death or the end that the test wants.
func (l *life) run(t *testing.T, p *Provisioner, end <-chan struct{}) {
	t.Helper()
	ctx, kill := context.WithCancel(context.Background())
	defer kill()
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	select {
	case <-l.died:
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
	before, after := newLife(step), newLife(0)
	processes := map[*life]*Provisioner{}
	for _, l := range []*life{before, after} { // both are made before any client is at work
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
		if !a.waitFor(before.died, func() bool { return a.isBound(name) }) {
			return
		}
		check.Report(t, a.client.CoreV1().PersistentVolumeClaims(a.namespace).Delete(context.Background(), name, metav1.DeleteOptions{}))
		a.waitFor(before.died, func() bool { return len(a.persistentVolumes(s.config.Name)) == 0 })
	}()
	before.run(t, processes[before], through)
	<-through
	t.Logf("it died at step %d: %s", step, before.last)
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
	return before.isDead()
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
