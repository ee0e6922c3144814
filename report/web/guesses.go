package web

import (
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/holdfast-storage/holdfast/listener"
)

const (
	guessDelay          = time.Second
	maxGuesses          = 16 // being delayed at once
	maxGuessesPerClient = 4
)

// guesses limits how fast passwords can be tried. A wrong one takes a place for guessDelay, even if the client hangs up.
// Without a free place no password is looked at, or the refusal would distinguish wrong ones from the right one.
type guesses struct {
	mu      sync.Mutex
	total   int
	clients map[netip.Prefix]int // with places
}

// check compares the user and the password of a request, and waits before it returns that they are wrong. It returns
// refused if it did not compare them.
func (g *guesses) check(r *http.Request, access *credentials) (right, refused bool) {
	user, password, given := r.BasicAuth()
	if !given {
		return false, false
	}
	client := listener.ClientOf(r.RemoteAddr)
	if right, refused = g.compare(client, access, user, password); right || refused {
		return right, refused
	}
	over := make(chan struct{})
	time.AfterFunc(guessDelay, func() { g.release(client); close(over) })
	select {
	case <-over:
	case <-r.Context().Done(): // the place stays taken
	}
	return false, false
}

func (g *guesses) compare(client netip.Prefix, access *credentials, user, password string) (right, refused bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.total >= maxGuesses || g.clients[client] >= maxGuessesPerClient {
		return false, true
	}
	if access.are(user, password) {
		return true, false
	}
	g.total++
	g.clients[client]++
	return false, false
}

func (g *guesses) release(client netip.Prefix) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.total--
	if g.clients[client]--; g.clients[client] == 0 {
		delete(g.clients, client)
	}
}
