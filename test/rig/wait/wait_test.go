package wait

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// failing is a test that may fail.
type failing struct {
	testing.TB
	said string
}

var errFailed = errors.New("the test has failed")

func (f *failing) Helper()                  {}
func (f *failing) Context() context.Context { return context.Background() }
func (f *failing) Fatalf(format string, args ...any) {
	f.said = fmt.Sprintf(format, args...)
	panic(errFailed)
}

// fails runs a test, and returns what it failed with.
func fails(do func(t testing.TB)) (said string) {
	f := &failing{}
	defer func() {
		said = f.said
		if r := recover(); r != nil && r != any(errFailed) {
			panic(r)
		}
	}()
	do(f)
	return ""
}

func TestFor_EndsWithTheLastErrorWhenItsTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, asked := time.Now(), 0
		said := fails(func(t testing.TB) {
			For(t, "a pool", func() error { asked++; return fmt.Errorf("try %d", asked) })
		})
		if took := time.Since(begun); took < patience-last || took > patience || said != fmt.Sprintf("a pool did not come: try %d", asked) {
			t.Errorf("after %s, it says %q", took, said)
		}
	})
}

func TestFor_TimeIsMultiplied(t *testing.T) {
	for given, want := range map[string]time.Duration{"3": 3 * patience, "0": 0, "x": 0} {
		synctest.Test(t, func(t *testing.T) {
			t.Setenv("HOLDFAST_TIME_SCALE", given)
			begun := time.Now()
			said := fails(func(t testing.TB) { Until(t, "a pool", func() bool { return false }) })
			if took := time.Since(begun); took < want-last || took > want || want == 0 && !strings.Contains(said, "from 1 on") {
				t.Errorf("%q: after %s, it says %q", given, took, said)
			}
		})
	}
}

func TestNever_FailsWhenItComesAndReturnsAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		later := func() bool { return time.Since(begun) > time.Minute }
		if said := fails(func(t testing.TB) { Never(t, "a pool", time.Hour, later) }); said != "a pool came" {
			t.Errorf("it says %q", said)
		}
		begun = time.Now()
		if said := fails(func(t testing.TB) { Never(t, "a pool", time.Minute, later) }); said != "" || time.Since(begun) < time.Minute {
			t.Errorf("after %s, it says %q", time.Since(begun), said)
		}
	})
}

// answers gives one answer after the other, and a pod after the last.
func answers(errs ...error) func(context.Context, string, metav1.GetOptions) (*core.Pod, error) {
	return func(context.Context, string, metav1.GetOptions) (*core.Pod, error) {
		if len(errs) == 0 {
			return &core.Pod{}, nil
		}
		err := errs[0]
		errs = errs[1:]
		return nil, err
	}
}

func TestGet_TakesNoErrorForAnAbsentObject(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	busy, absent := apierrors.NewTooManyRequests("busy", 1), apierrors.NewNotFound(pods, "a")
	if Get(t, answers(busy, busy), "a") == nil {
		t.Error("a busy server's object is absent")
	}
	if Get(t, answers(busy, absent), "a") != nil {
		t.Error("it found what is absent")
	}
}

func TestModify_RepeatsAConflictAndNotARefusal(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	tries := 0
	write := func(failed error) func(context.Context, *core.Pod, metav1.UpdateOptions) (*core.Pod, error) {
		return func(_ context.Context, p *core.Pod, _ metav1.UpdateOptions) (*core.Pod, error) {
			if tries++; tries == 1 {
				return nil, failed
			}
			return p, nil
		}
	}
	change := func(p *core.Pod) { p.Name = "changed" }
	if p := Modify(t, answers(), write(apierrors.NewConflict(pods, "a", nil)), "a", change); p.Name != "changed" || tries != 2 {
		t.Errorf("after %d tries: %v", tries, p)
	}
	tries = 0
	said := fails(func(t testing.TB) { Modify(t, answers(), write(apierrors.NewForbidden(pods, "a", nil)), "a", change) })
	if !strings.Contains(said, "forbidden") || tries != 1 {
		t.Errorf("after %d tries it says %q", tries, said)
	}
}
