package listener

import (
	"net/http"
	"net/netip"
	"sync"

	"golang.org/x/sync/semaphore"
)

// LimitRequests returns a handler that serves at most most requests at once, which limits the memory of all answers. The
// others wait until their client gives up. One client has at most all places but one, or a client that reads its answers
// slowly would keep out all others.
func LimitRequests(next http.Handler, most int) http.Handler {
	return &requests{next: next, perClient: max(int64(most-1), 1), places: semaphore.NewWeighted(int64(most)), clients: map[netip.Prefix]*requester{}}
}

type requests struct {
	next      http.Handler
	perClient int64
	places    *semaphore.Weighted

	mu      sync.Mutex
	clients map[netip.Prefix]*requester
}

type requester struct {
	places   *semaphore.Weighted
	requests int // served and waiting
}

// ServeHTTP takes a place of the client first: the places of all are then waited for in turn, by each client with few.
func (q *requests) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	client := ClientOf(r.RemoteAddr)
	own := q.enter(client)
	defer q.leave(client)
	for _, places := range []*semaphore.Weighted{own, q.places} {
		if places.Acquire(r.Context(), 1) != nil {
			return
		}
		defer places.Release(1)
	}
	q.next.ServeHTTP(w, r)
}

func (q *requests) enter(client netip.Prefix) *semaphore.Weighted {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.clients[client]
	if c == nil {
		c = &requester{places: semaphore.NewWeighted(q.perClient)}
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
