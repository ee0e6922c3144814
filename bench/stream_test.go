package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// scripted returns one watch after the other, or an error, and blocks at the end of the script.
type scripted struct {
	listed  []core.Pod // by the first list
	again   []core.Pod // by a later list, after a failure
	lists   int
	script  []any
	options []metav1.ListOptions // of the requested watches
}

func (s *scripted) List(_ context.Context, options metav1.ListOptions) (*core.PodList, error) {
	s.lists++
	switch {
	case s.lists == 1 && options.Limit != 1:
		return nil, errors.New("the first list is not limited")
	case s.lists == 1:
		return &core.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "5"}, Items: s.listed}, nil
	case s.lists == 2:
		return nil, errors.New("connection refused")
	case options.Limit != 0 || options.ResourceVersion != "":
		return nil, fmt.Errorf("requested with %+v, the list is incomplete", options)
	}
	return &core.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "30"}, Items: s.again}, nil
}

func (s *scripted) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	s.options = append(s.options, options)
	if len(s.script) == 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	next := s.script[0]
	s.script = s.script[1:]
	if err, ok := next.(error); ok {
		return nil, err
	}
	return next.(watch.Interface), nil
}

// versions returns the resource versions from which watches started.
func (s *scripted) versions() (all []string) {
	for _, o := range s.options {
		all = append(all, o.ResourceVersion)
	}
	return all
}

// ending is a watch that sends events and ends.
func ending(events ...watch.Event) watch.Interface {
	w := watch.NewFakeWithChanSize(len(events), false)
	for _, e := range events {
		w.Action(e.Type, e.Object)
	}
	w.Stop()
	return w
}

func versioned(name, version string) *core.Pod {
	return &core.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
}

// followed follows a script to its end and returns the reported names, the number of interruptions, and the time of the
// last report.
func followed(t *testing.T, s *scripted) (names []string, interruptions int, took time.Duration, err error) {
	t.Helper()
	begun := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	of := &stream[*core.PodList]{
		name: "pods", from: s,
		tell: func(e event) {
			if e.at.IsZero() {
				t.Errorf("%v has no time", e)
			}
			took = e.at.Sub(begun)
			name := e.object.(*core.Pod).Name
			if e.kind == watch.Deleted {
				name = "-" + name
			}
			names = append(names, name)
		},
		interrupted: func(error) { interruptions++ },
	}
	if err := of.open(ctx); err != nil {
		cancel()
		return nil, 0, 0, err
	}
	time.AfterFunc(time.Hour, cancel) // after the end of the script
	of.run(ctx)
	return names, interruptions, took, nil
}

func TestStream_ContinuesWhereTheWatchHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{listed: []core.Pod{*versioned("a", "4")}, script: []any{
			ending(watch.Event{Type: watch.Added, Object: versioned("b", "6")}, watch.Event{Type: watch.Bookmark, Object: versioned("", "9")}),
			ending(),
			ending(watch.Event{Type: watch.Deleted, Object: versioned("c", "12")}),
		}}
		names, interruptions, _, err := followed(t, s)
		if err != nil || interruptions != 0 || !slices.Equal(names, []string{"a", "b", "-c"}) {
			t.Errorf("reported are %v with %d interruptions, %v", names, interruptions, err)
		}
		if got := s.versions(); !slices.Equal(got, []string{"5", "9", "9", "12"}) {
			t.Errorf("watches began at %v", got)
		}
		for _, o := range s.options {
			if o.Limit != 0 || !o.AllowWatchBookmarks {
				t.Errorf("a watch was requested with %+v", o)
			}
		}
	})
}

func TestStream_InterruptedContinuesAndReportsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := apierrors.NewInternalError(errors.New("busy")).Status()
		s := &scripted{script: []any{
			ending(watch.Event{Type: watch.Added, Object: versioned("a", "6")}, watch.Event{Type: watch.Error, Object: &busy}),
			errors.New("connection refused"),
			errors.New("connection refused"),
			ending(watch.Event{Type: watch.Added, Object: versioned("b", "7")}),
		}}
		names, interruptions, took, err := followed(t, s)
		if err != nil || interruptions != 3 || !slices.Equal(names, []string{"a", "b"}) {
			t.Errorf("reported are %v with %d interruptions, %v", names, interruptions, err)
		}
		if took < 3*retryDelay {
			t.Error("it did not pause before it tried again")
		}
	})
}

func TestStream_ThatLostEventsReportsWhatExistsAndWhatIsGone(t *testing.T) {
	expired := apierrors.NewResourceExpired("too old").Status()
	gone := &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusGone, Reason: metav1.StatusReasonGone}}
	begin := func() watch.Interface {
		return ending(watch.Event{Type: watch.Added, Object: versioned("a", "6")}, watch.Event{Type: watch.Added, Object: versioned("b", "7")},
			watch.Event{Type: watch.Added, Object: versioned("c", "8")}, watch.Event{Type: watch.Deleted, Object: versioned("c", "9")})
	}
	for name, script := range map[string][]any{
		"as an event":   {begin(), ending(watch.Event{Type: watch.Error, Object: &expired})},
		"as an answer":  {begin(), gone},
		"after a while": {begin(), errors.New("connection refused"), gone},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scripted{again: []core.Pod{*versioned("b", "7"), *versioned("d", "10")}}
				s.script = append(script, ending(watch.Event{Type: watch.Added, Object: versioned("e", "31")}))
				names, interruptions, _, err := followed(t, s)
				if want := []string{"a", "b", "c", "-c", "b", "d", "-a", "e"}; err != nil || !slices.Equal(names, want) {
					t.Errorf("reported are %v, want %v, %v", names, want, err)
				}
				if interruptions == 0 {
					t.Error("it does not say that it was interrupted")
				}
				if versions := s.versions(); !slices.Equal(versions[len(versions)-2:], []string{"30", "31"}) {
					t.Errorf("watches began at %v, and the second list is of 30", versions)
				}
			})
		})
	}
}

func TestStream_ThatCannotBeOpenedNamesItsResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if _, _, _, err := followed(t, &scripted{script: []any{errors.New("forbidden")}}); err == nil || err.Error() != "watching pods: forbidden" {
			t.Errorf("got %v", err)
		}
	})
}

func TestStream_FailureEndsEveryWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSeen("here")
		forbidden := errors.New("watching pods: forbidden")
		time.AfterFunc(time.Second, func() { s.update(func() { s.blind = forbidden }) })
		if err := s.await(t.Context(), func() (bool, error) { return false, nil }); !errors.Is(err, forbidden) {
			t.Errorf("got %v", err)
		}
	})
}
