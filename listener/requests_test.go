package listener

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// limitedHandler serves requests of which the test decides when each ends.
type limitedHandler struct {
	*testing.T
	limited *requests
	begun   chan string
	end     chan struct{}
	running atomic.Int32
	all     sync.WaitGroup
}

func limitRequests(t *testing.T, most int) *limitedHandler {
	l := &limitedHandler{T: t, begun: make(chan string, 1000), end: make(chan struct{})}
	l.limited = LimitRequests(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		l.running.Add(1)
		defer l.running.Add(-1)
		l.begun <- r.RemoteAddr
		<-l.end
	}), most).(*requests)
	t.Cleanup(l.all.Wait)
	return l
}

func (l *limitedHandler) request(ctx context.Context, from string, times int) {
	for range times {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody)
		r.RemoteAddr = from
		l.all.Go(func() { l.limited.ServeHTTP(httptest.NewRecorder(), r) })
	}
}

// next is the client of the next request that is served.
func (l *limitedHandler) next() string {
	l.Helper()
	select {
	case client := <-l.begun:
		return client
	case <-time.After(time.Minute):
		l.Fatal("no request is served")
		return ""
	}
}

// waiting waits until a client has that many requests.
func (l *limitedHandler) waiting(from string, requests int) {
	l.Helper()
	wait.Until(l, fmt.Sprintf("%d requests of %s", requests, from), func() bool {
		l.limited.mu.Lock()
		defer l.limited.mu.Unlock()
		c := l.limited.clients[ClientOf(from)]
		return c != nil && c.requests == requests || c == nil && requests == 0
	})
}

func TestRequests_AboveTheLimitWaitForAPlace(t *testing.T) {
	l := limitRequests(t, 4)
	for _, from := range []string{"192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1", "192.0.2.4:1", "192.0.2.5:1"} {
		l.request(t.Context(), from, 2)
		l.waiting(from, 2)
	}
	for range 4 {
		l.next()
	}
	for range 6 {
		if n := l.running.Load(); n != 4 || len(l.begun) > 0 {
			t.Errorf("%d requests are served, of which %d have just begun", n, len(l.begun))
		}
		l.end <- struct{}{}
		l.next()
	}
	close(l.end)
	l.all.Wait()
	if free := l.limited.places.TryAcquire(4); len(l.limited.clients) > 0 || !free {
		t.Errorf("remembered are %v, and that all places are free is %t", l.limited.clients, free)
	}
}

func TestRequests_OfOneClientLeaveAPlaceForOthers(t *testing.T) {
	l := limitRequests(t, 4)
	defer close(l.end)
	l.request(t.Context(), "192.0.2.1:1", 256)
	l.waiting("192.0.2.1:1", 256)
	for range 3 {
		l.next()
	}
	l.request(t.Context(), "192.0.2.2:1", 1)
	if client := l.next(); client != "192.0.2.2:1" {
		t.Errorf("%s is served", client)
	}
}

func TestRequests_ClientThatGivesUpIsNotServed(t *testing.T) {
	l := limitRequests(t, 1)
	defer close(l.end)
	l.request(t.Context(), "192.0.2.1:1", 1)
	l.next()
	waits, giveUp := context.WithCancel(t.Context())
	l.request(waits, "192.0.2.2:1", 3)
	l.waiting("192.0.2.2:1", 3)
	giveUp()
	l.waiting("192.0.2.2:1", 0)
	l.request(t.Context(), "192.0.2.3:1", 1)
	l.waiting("192.0.2.3:1", 1)
	l.end <- struct{}{}
	if client := l.next(); client != "192.0.2.3:1" {
		t.Errorf("%s is served", client)
	}
}
