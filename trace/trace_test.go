package trace

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// collector is what an exporter sends to.
func collector(t *testing.T) (endpoint string, received chan request) {
	received = make(chan request, 100)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		var r request
		if err := json.NewDecoder(q.Body).Decode(&r); err != nil || q.URL.Path != "/v1/traces" || q.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %v: %v", q.URL, q.Header, err)
		}
		received <- r
	}))
	t.Cleanup(server.Close)
	return server.URL, received
}

// runs starts an exporter, and returns its log and what that writes.
func runs(t *testing.T, e *Exporter) (*slog.Logger, *strings.Builder) {
	var text strings.Builder
	log := slog.New(e.Handler(slog.NewTextHandler(&text, nil)))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); e.Run(ctx, slog.New(slog.NewTextHandler(t.Output(), nil))) }()
	t.Cleanup(func() { stop(); <-ended })
	return log, &text
}

func TestTrace_DurationsOfAVolumeAreTheSpansOfOneTraceInAllProcesses(t *testing.T) {
	endpoint, received := collector(t)
	var spans []span
	for _, process := range []string{"controller", "node"} {
		e := New(process)
		log, text := runs(t, e)
		log.Debug("before", "volume", "v", "duration", time.Second)
		if !e.SendTo(endpoint) || e.SendTo(endpoint) {
			t.Error("a change is not reported once")
		}
		log.With("volume", "v").Debug("format", "duration", 2*time.Second)
		log.Info("call", "method", "CreateVolume", "volume", "v", "duration", time.Second, "error", errors.New("full"))
		log.Debug("format", "volume", "other", "duration", time.Second)
		log.Info("of no volume", "duration", time.Second)
		log.Info("without a duration", "volume", "v")
		for n := len(spans) + 3; len(spans) < n; {
			r := <-received
			if of := r.Resources[0].Resource.Attributes[0]; of.Key != "service.name" || of.Value.Text != process {
				t.Errorf("the spans are of %+v", of)
			}
			spans = append(spans, r.Resources[0].Scopes[0].Spans...)
		}
		if e.SendTo(""); strings.Contains(text.String(), "format") || !strings.Contains(text.String(), "CreateVolume") {
			t.Errorf("the log has\n%s", text)
		}
	}
	ids := map[string]bool{}
	for i, s := range spans {
		want := []string{"format", "CreateVolume", "format"}[i%3]
		start, end := check.Got(json.Number(s.Start).Int64())(t), check.Got(json.Number(s.End).Int64())(t)
		if s.Name != want || end-start != int64([]time.Duration{2 * time.Second, time.Second, time.Second}[i%3]) {
			t.Errorf("span %d: %+v", i, s)
		}
		if !regexp.MustCompile("^[0-9a-f]{32}$").MatchString(s.Trace) || !regexp.MustCompile("^[0-9a-f]{16}$").MatchString(s.ID) || ids[s.ID] {
			t.Errorf("span %d has the IDs %s and %s", i, s.Trace, s.ID)
		}
		ids[s.ID] = true
		if ofOther := i%3 == 2; (s.Trace != spans[0].Trace) != ofOther {
			t.Errorf("span %d is in the trace %s", i, s.Trace)
		}
		if failed := i%3 == 1; failed != (s.Status != nil) || failed && (s.Status.Code != 2 || s.Status.Message != "full") {
			t.Errorf("span %d ended with %+v", i, s.Status)
		}
	}
}

// A call that failed has the name of the volume, and not its ID.
func TestTrace_OfAVolumeThatIsCreatedAtTheSecondAttemptIsOne(t *testing.T) {
	h := &handler{}
	failed, made := slog.NewRecord(time.Now(), 0, "call", 0), slog.NewRecord(time.Now(), 0, "call", 0)
	failed.Add("name", "pvc-1", "duration", time.Second)
	made.Add("name", "pvc-1", "volume", "pvc-1", "duration", time.Second)
	a, isA := h.span(failed)
	b, isB := h.span(made)
	if !isA || !isB || a.Trace != b.Trace {
		t.Errorf("%+v and %+v", a, b)
	}
}

func TestTrace_OfASnapshotIsItsOwnAndNotThatOfItsSource(t *testing.T) {
	traceOf := func(attrs ...any) string {
		r := slog.NewRecord(time.Now(), 0, "call", 0)
		r.Add(append(attrs, "duration", time.Second)...)
		s, _ := (&handler{}).span(r)
		return s.Trace
	}
	taken, reconciled, source := traceOf("volume", "v", "snapshot", "s"), traceOf("id", "s"), traceOf("volume", "v")
	if taken != reconciled || taken == source {
		t.Errorf("a snapshot has the traces %s and %s, and its source %s", taken, reconciled, source)
	}
}

func TestTrace_CollectorThatTakesNothingHoldsUpNothing(t *testing.T) {
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	defer refusing.Close()
	e := New("node")
	log, text := runs(t, e)
	e.SendTo(refusing.URL)
	for range 3 * mostWaiting {
		log.Info("format", "volume", "v", "duration", time.Second)
	}
	if n := strings.Count(text.String(), "format"); n != 3*mostWaiting {
		t.Errorf("%d records were logged", n)
	}
	endpoint, received := collector(t)
	e.SendTo(endpoint)
	wait.Until(t, "spans after that", func() bool {
		log.Info("later", "volume", "v", "duration", time.Second)
		select {
		case r := <-received:
			return slices.ContainsFunc(r.Resources[0].Scopes[0].Spans, func(s span) bool { return s.Name == "later" })
		default:
			return false
		}
	})
}
