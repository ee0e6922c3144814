package web

import (
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/listener"
)

// The limits of wrong passwords. Whoever goes through a list of them gets ten a minute from each address that he has.
const (
	maxAttempts     = 10
	attemptReturns  = 6 * time.Second // each, until there are all again
	maxKnownClients = 4096
	// tellEvery is how often an event tells of such clients: with many addresses one could else drown what else happens to
	// the StorageCluster.
	tellEvery = 10 * time.Minute
)

const reasonWrongPasswords = "WrongPasswords"

// attempts counts wrong passwords by client, in bounded memory: of too many clients the one is forgotten whose last wrong
// password is the oldest.
type attempts struct {
	now func() time.Time

	mu      sync.Mutex
	of      credentials // that were guessed at
	clients map[netip.Prefix]*attempt
	told    time.Time // of the last event
	untold  int       // clients that were refused since
}

type attempt struct {
	wrong   float64   // less what came back since
	at      time.Time // of the last wrong one
	refused bool      // and told so
}

func newAttempts() *attempts {
	return &attempts{now: time.Now, clients: map[netip.Prefix]*attempt{}}
}

// verdict is what becomes of a password.
type verdict struct {
	refused bool          // without regard to the password
	first   bool          // and for the first time since the client was let in
	wait    time.Duration // until it may try again
}

// judge says whether the client may try a password, and counts it if it is wrong. A client that may not learns nothing of
// whether the password was right.
func (a *attempts) judge(client netip.Prefix, of credentials, right bool) verdict {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	if a.of != of { // with a new password everybody begins anew
		a.of, a.clients = of, map[netip.Prefix]*attempt{}
	}
	known := a.clients[client]
	if known == nil {
		if !right {
			a.forgetOldest(now)
			a.clients[client] = &attempt{wrong: 1, at: now}
		}
		return verdict{}
	}
	left := max(known.wrong-now.Sub(known.at).Seconds()/attemptReturns.Seconds(), 0)
	if left > maxAttempts-1 {
		first := !known.refused
		known.refused = true
		return verdict{refused: true, first: first, wait: time.Duration((left - (maxAttempts - 1)) * float64(attemptReturns))}
	}
	if left == 0 {
		known.refused = false
	}
	if !right {
		known.wrong, known.at = left+1, now
	}
	return verdict{}
}

// forgetOldest makes room for one more client.
func (a *attempts) forgetOldest(now time.Time) {
	if len(a.clients) < maxKnownClients {
		return
	}
	var oldest netip.Prefix
	var at time.Time
	for client, known := range a.clients {
		if now.Sub(known.at) > maxAttempts*attemptReturns {
			delete(a.clients, client)
			continue
		}
		if at.IsZero() || known.at.Before(at) {
			oldest, at = client, known.at
		}
	}
	if len(a.clients) >= maxKnownClients {
		delete(a.clients, oldest)
	}
}

// tell says whether an event is due about a client that is refused from now on, and how many others there were since the
// one before.
func (a *attempts) tell() (due bool, others int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := a.now(); a.told.IsZero() || now.Sub(a.told) >= tellEvery {
		due, others = true, a.untold
		a.told, a.untold = now, 0
		return due, others
	}
	a.untold++
	return false, 0
}

// refuseClient answers one that has given too many wrong passwords.
func (s *Server) refuseClient(w http.ResponseWriter, r *http.Request, v verdict) {
	client := listener.ClientOf(r.RemoteAddr)
	if v.first {
		s.Log.Warn("a client gave too many wrong passwords and is refused", "client", client.String(), "wrong", maxAttempts)
		s.tellOfRefusal(client)
	}
	w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(v.wait.Seconds()))))
	fail(w, http.StatusTooManyRequests, fmt.Sprintf("%d wrong passwords came from %s, so none is looked at for now: try again after %s, with the right one", maxAttempts, client, v.wait.Round(time.Second)+time.Second))
}

func (s *Server) tellOfRefusal(client netip.Prefix) {
	due, others := s.attempts.tell()
	if !due || s.Events == nil {
		return
	}
	all, _ := s.clusters.List(labels.Everything()) // what is read from a cache has no error
	c := v1.Served(all)
	if c == nil {
		return
	}
	more := ""
	if others > 0 {
		more = fmt.Sprintf(", as were %d others since the last such event", others)
	}
	s.Events.Eventf(c, core.EventTypeWarning, reasonWrongPasswords,
		"the HTTPS API was given %d wrong passwords by %s, which may now try one every %s%s: if you do not know that client, keep it from port %s of the pods of the controller, and see that the password in spec.secretRef is long",
		maxAttempts, client, attemptReturns, more, s.port())
}
