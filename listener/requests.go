package listener

import (
	"context"
	"net/http"
	"net/netip"
	"sync"
)

// LimitRequests returns a handler that serves at most most requests at once, which limits the memory of all answers. The
// others wait until their client gives up. One client has at most all places but one, or a client that reads its answers
// slowly would keep out all others.
func LimitRequests(next http.Handler, most int) http.Handler {
	return &requests{next: next, perClient: max(most-1, 1), places: make(places, most), clients: map[netip.Prefix]*requester{}}
}

type requests struct {
	next      http.Handler
	perClient int
	places    places

	mu      sync.Mutex
	clients map[netip.Prefix]*requester
}

// requester is a client with requests.
type requester struct {
	places   places
	requests int // served and waiting
}

// places are taken by sending to them.
type places chan struct{}

func (p places) take(ctx context.Context) bool {
	select {
	case p <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (p places) release() { <-p }

// ServeHTTP takes a place of the client first: the places of all are then waited for in turn, by each client with few.
func (q *requests) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	client := ClientOf(r.RemoteAddr)
	own := q.enter(client)
	defer q.leave(client)
	if !own.take(r.Context()) {
		return
	}
	defer own.release()
	if !q.places.take(r.Context()) {
		return
	}
	defer q.places.release()
	q.next.ServeHTTP(w, r)
}

func (q *requests) enter(client netip.Prefix) places {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.clients[client]
	if c == nil {
		c = &requester{places: make(places, q.perClient)}
		q.clients[client] = c
	}
	c.requests++
	return c.places
}

func (q *requests) leave(client netip.Prefix) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c := q.clients[client]; c.requests > 1 {
		c.requests--
		return
	}
	delete(q.clients, client)
}
