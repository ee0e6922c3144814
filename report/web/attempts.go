package web

import (
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"

	"github.com/holdfast-storage/holdfast/listener"
)

// The limits of wrong passwords. A client that goes through a list of them gets ten a minute from each of its addresses.
const (
	maxAttempts     = 10
	attemptReturns  = 6 * time.Second // each, until there are all again
	maxKnownClients = 4096
	// refusalEventEvery is how often an event reports such clients: with many addresses one could else drown what else happens to
	// the StorageCluster.
	refusalEventEvery = 10 * time.Minute
)

const reasonWrongPasswords = "WrongPasswords"

// attempts counts wrong passwords by client, in bounded memory: of too many clients the one is forgotten that was heard of
// the longest ago.
type attempts struct {
	clock clock.PassiveClock

	mu      sync.Mutex
	clients *cache.LRUExpireCache // guesser to *attempt
	events  *rate.Limiter
	untold  int // clients that were refused since the last event
}

// guesser is a client and what it guesses at: with a new password every client starts afresh.
type guesser struct {
	netip.Prefix
	credentials
}

type attempt struct {
	*rate.Limiter      // of wrong passwords
	refused       bool // and reported
}

func newAttempts(c clock.PassiveClock) *attempts {
	return &attempts{clock: c, clients: cache.NewLRUExpireCacheWithClock(maxKnownClients, c), events: rate.NewLimiter(rate.Every(refusalEventEvery), 1)}
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
	now, who := a.clock.Now(), guesser{client, of}
	found, _ := a.clients.Get(who)
	known, is := found.(*attempt)
	if !is {
		known = &attempt{Limiter: rate.NewLimiter(rate.Every(attemptReturns), maxAttempts)}
	}
	left := known.TokensAt(now)
	if left < 1 {
		first := !known.refused
		known.refused = true
		return verdict{refused: true, first: first, wait: time.Duration((1 - left) * float64(attemptReturns))}
	}
	if !right {
		known.AllowN(now, 1)
		a.clients.Add(who, known, maxAttempts*attemptReturns) // when there are all again
	}
	return verdict{}
}

// report says whether an event is due about a client that is refused from now on, and how many others there were since the
// one before.
func (a *attempts) report() (due bool, others int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.events.AllowN(a.clock.Now(), 1) {
		a.untold++
		return false, 0
	}
	others, a.untold = a.untold, 0
	return true, others
}

// refuseClient answers one that has given too many wrong passwords.
func (s *Server) refuseClient(w http.ResponseWriter, r *http.Request, v verdict) {
	client := listener.ClientOf(r.RemoteAddr)
	if v.first {
		s.Log.Warn("a client gave too many wrong passwords and is refused", "client", client.String(), "wrong", maxAttempts)
		s.recordRefusal(client)
	}
	w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(v.wait.Seconds()))))
	fail(w, http.StatusTooManyRequests, fmt.Sprintf("%d wrong passwords came from %s, so none is looked at for now: try again after %s, with the right one", maxAttempts, client, v.wait.Round(time.Second)+time.Second))
}

func (s *Server) recordRefusal(client netip.Prefix) {
	due, others := s.attempts.report()
	if !due || s.Events == nil {
		return
	}
	c := s.known().Served()
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
