package miniapi

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// after is where the history goes on after a version; without one it is its end.
func (s *Server) after(version string) int {
	next := len(s.history)
	if since, err := strconv.Atoi(version); err == nil && since > 0 {
		for next > 0 && s.history[next-1].version > since {
			next--
		}
	}
	return next
}

// watch streams what has changed since the requested version, after what there is if the client wants that too.
func (s *Server) watch(w http.ResponseWriter, q *request) {
	query := q.URL.Query()
	want, err := parseSelector(query.Get("labelSelector"), query.Get("fieldSelector"))
	if err != nil {
		fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	stream := json.NewEncoder(w)
	send := func(kind string, o any) bool {
		if stream.Encode(map[string]any{"type": kind, "object": o}) != nil {
			return false
		}
		w.(http.Flusher).Flush()
		return true
	}
	s.mu.Lock()
	next, breaks := s.after(query.Get("resourceVersion")), s.breaks
	var initial []object
	if query.Get("sendInitialEvents") == "true" {
		next = len(s.history)
		for k, o := range s.objects {
			if q.covers(k) && want.matches(o) {
				initial = append(initial, o)
			}
		}
	}
	at := s.version
	s.mu.Unlock()
	for _, o := range initial {
		send("ADDED", o)
	}
	if query.Get("sendInitialEvents") == "true" {
		send("BOOKMARK", q.bookmark(at))
	}
	w.(http.Flusher).Flush()
	// A client that leaves wakes the wait below.
	stop := context.AfterFunc(q.Context(), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changed.Broadcast()
	})
	defer stop()
	for {
		e, ok := s.next(q.Context(), &next, breaks)
		if !ok {
			return
		}
		if kind := e.seenBy(want); kind != "" && q.covers(e.key) && !send(kind, e.object) {
			return
		}
	}
}

// seenBy is what an event is to who selects: an object that begins to match comes, one that matches no more goes.
func (e event) seenBy(want selector) string {
	was, is := e.old != nil && want.matches(e.old), want.matches(e.object)
	switch {
	case e.kind == "MODIFIED" && is && !was:
		return "ADDED"
	case e.kind == "MODIFIED" && was && !is:
		return "DELETED"
	case was || is:
		return e.kind
	}
	return ""
}

// next waits for the event at position *at, and is over when the watch is.
func (s *Server) next(ctx context.Context, at *int, breaks int) (event, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.closed && s.breaks == breaks && ctx.Err() == nil && (s.held || *at >= len(s.history)) {
		s.changed.Wait()
	}
	if s.closed || s.breaks != breaks || ctx.Err() != nil {
		return event{}, false
	}
	e := s.history[*at]
	*at++
	return e, true
}

func (q *request) covers(k key) bool {
	return k.of() == q.of() && (q.namespace == "" || k.namespace == q.namespace)
}

func (q *request) bookmark(version int) object {
	return object{
		"kind": kinds[q.resource], "apiVersion": q.version,
		"metadata": map[string]any{
			"resourceVersion": strconv.Itoa(version),
			"annotations":     map[string]any{metav1.InitialEventsAnnotationKey: "true"},
		},
	}
}
