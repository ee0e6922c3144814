// Package trace sends what the log says of durations to a collector of OpenTelemetry, as spans.
//
// A record with a duration is a span that ends when it is logged, and its message, or its method, is the name. The ID of
// a trace is derived from that of the volume or snapshot: the spans of all processes are in one trace, and no process
// passes it to another.
package trace

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
)

const (
	mostWaiting = 1000 // spans; more are dropped
	mostAtOnce  = 200
	sendEvery   = time.Second
	patience    = 10 * time.Second // with the collector
)

// Exporter sends spans to a collector by OTLP over HTTP, as JSON, as soon as it has its endpoint.
type Exporter struct {
	process, instance string
	endpoint          atomic.Pointer[string] // nil sends nothing
	spans             chan span
}

// New returns an exporter that is off. The process is the name of the service.
func New(process string) *Exporter {
	host, _ := os.Hostname()
	return &Exporter{process: process, instance: host, spans: make(chan span, mostWaiting)}
}

// SendTo sends what follows to an endpoint such as http://collector.example:4318; "" ends it. It reports whether that is a change.
func (e *Exporter) SendTo(endpoint string) (changed bool) {
	next := &endpoint
	if endpoint == "" {
		next = nil
	}
	was := e.endpoint.Swap(next)
	return was != next && (was == nil || next == nil || *was != *next)
}

// Run sends spans until ctx ends. Those that a collector does not take are lost.
func (e *Exporter) Run(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(sendEvery)
	defer tick.Stop()
	failed := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for endpoint := e.endpoint.Load(); endpoint != nil && len(e.spans) > 0; {
			err := e.send(ctx, *endpoint)
			if err != nil && !failed {
				log.Warn("traces are lost", "error", err)
			}
			if failed = err != nil; failed {
				break
			}
		}
	}
}

// send sends some of the spans that wait.
func (e *Exporter) send(ctx context.Context, endpoint string) error {
	var all []span
	for len(all) < mostAtOnce && len(e.spans) > 0 {
		all = append(all, <-e.spans)
	}
	of := resource{attributes("service.name", e.process, "service.instance.id", e.instance)}
	body, err := json.Marshal(request{[]resourceSpans{{Resource: of, Scopes: []scopeSpans{{Scope: scope{"holdfast"}, Spans: all}}}}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint+"/v1/traces", bytes.NewReader(body))
	if err != nil {
		return err
	}
	q.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<20))
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", q.URL, answer.Status)
	}
	return nil
}

// Handler returns a handler that passes records on to another, and makes spans of those with a duration, also of those
// below the level of the other.
func (e *Exporter) Handler(next slog.Handler) slog.Handler { return &handler{next: next, to: e} }

type handler struct {
	next  slog.Handler
	to    *Exporter
	attrs []slog.Attr
}

func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.to.endpoint.Load() != nil || h.next.Enabled(ctx, level)
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.next.WithAttrs(attrs), h.to, append(slices.Clip(h.attrs), attrs...)}
}

func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.next.WithGroup(name), h.to, h.attrs}
}

func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if h.to.endpoint.Load() != nil {
		if s, is := h.span(r); is {
			select {
			case h.to.spans <- s:
			default: // the collector is too slow
			}
		}
	}
	if !h.next.Enabled(ctx, r.Level) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

// span returns the span of a record with a duration that is about a volume or a snapshot.
func (h *handler) span(r slog.Record) (s span, is bool) {
	has := map[string]slog.Value{}
	for _, a := range h.attrs {
		has[a.Key] = a.Value
	}
	r.Attrs(func(a slog.Attr) bool { has[a.Key] = a.Value; return true })
	took, subject := has["duration"], subject(has)
	if took.Kind() != slog.KindDuration || subject == "" {
		return s, false
	}
	sum, id := sha256.Sum256([]byte(subject)), make([]byte, 8)
	_, _ = rand.Read(id) // never fails
	s = span{
		Trace: hex.EncodeToString(sum[:16]), ID: hex.EncodeToString(id), Name: r.Message, Kind: 1,
		Start: nano(r.Time.Add(-took.Duration())), End: nano(r.Time), Attributes: attributes("holdfast.id", subject),
	}
	if method, is := has["method"]; is {
		s.Name = method.String()
	}
	if err, failed := has["error"]; failed {
		s.Status = &spanStatus{Code: 2, Message: err.String()}
	}
	return s, true
}

// subject returns the ID of the volume or snapshot that a record is about.
func subject(has map[string]slog.Value) string {
	for _, key := range []string{"id", "snapshot", "volume"} { // a snapshot is logged with its source
		if v, is := has[key]; is {
			return v.String()
		}
	}
	if name, is := has["name"]; is { // of what could not be created
		if id, err := backend.IDFor(name.String()); err == nil {
			return string(id)
		}
	}
	return ""
}

func nano(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }
