package kube

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// printing is a cluster whose only pod prints what it is given, and then goes on for ever if a test sets that.
func printing(t *testing.T, text string, forever bool) *Cluster {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, text)
		if forever {
			_ = http.NewResponseController(w).Flush() // the client may have gone
			<-r.Context().Done()
		}
	}))
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return &Cluster{Client: client}
}

func TestFollower_GetsWholeLinesAndTheEnd(t *testing.T) {
	s := &Space{Cluster: printing(t, "one\n\ntwo\nthr", false), t: t}
	if lines := slices.Collect(values(s.Lines(t.Context(), "p"))); !slices.Equal(lines, []string{"one", "", "two"}) {
		t.Errorf("lines %q", lines)
	}
}

func TestFollower_OfAnEndlessLogStopsWithItsContext(t *testing.T) {
	s := &Space{Cluster: printing(t, strings.Repeat("line\n", 2000), true), t: t}
	ctx, stop := context.WithCancel(t.Context())
	lines := s.Lines(ctx, "p")
	<-lines
	stop()
	for line := range lines {
		if line != "line" {
			t.Errorf("line %q", line)
		}
	}
}

func TestFollower_PodThatPrintsTooLittleIsNamedWithItsOutput(t *testing.T) {
	failed := try(t, "TestIt", func(t testing.TB) {
		s := &Space{Cluster: printing(t.(*trial).TB.(*testing.T), "one\ntwo\n", false), t: t}
		if first := s.FirstLines("p", 2); !slices.Equal(first, []string{"one", "two"}) {
			t.Errorf("lines %q", first)
		}
		s.FirstLines("p", 3)
	})
	if !strings.Contains(failed.said.String(), `pod p has printed ["one" "two"], and not 3 lines`) {
		t.Errorf("the failure says %q", failed.said.String())
	}
}

func values(lines <-chan string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for line := range lines {
			if !yield(line) {
				return
			}
		}
	}
}
