// Package listener limits what a peer can consume of a port or socket: the number of connections, how long one may be
// idle, and how long a request and its response may take.
package listener

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Limit returns a listener with at most most open connections. A connection above that is never kept waiting, or a
// client that holds all of them idle would block the kubelet's probes. Instead the listener closes a connection of the
// client that has the most: the one idle for the longest time.
func Limit(l net.Listener, most int) net.Listener {
	return &limited{Listener: l, most: most, begun: time.Now(), open: map[*conn]bool{}, perClient: map[netip.Prefix]int{}}
}

type limited struct {
	net.Listener
	most  int
	begun time.Time

	mu        sync.Mutex
	open      map[*conn]bool
	perClient map[netip.Prefix]int // connections per client
}

func (l *limited) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: accepted, listener: l, client: Client(accepted.RemoteAddr())}
	c.touch()
	if victim := l.add(c); victim != nil {
		_ = victim.Close() // its peer may have closed it
	}
	return c, nil
}

// add adds a connection, and returns the one to close for it; nil if the limit is not reached.
func (l *limited) add(c *conn) *conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.perClient[c.client]++ // count the new one first: a client at the limit then displaces its own connections
	var victim *conn
	if len(l.open) >= l.most {
		for other := range l.open {
			if victim == nil || l.closesBefore(other, victim) {
				victim = other
			}
		}
		l.drop(victim)
	}
	l.open[c] = true
	return victim
}

func (l *limited) closesBefore(a, b *conn) bool {
	if l.perClient[a.client] != l.perClient[b.client] {
		return l.perClient[a.client] > l.perClient[b.client]
	}
	return a.last.Load() < b.last.Load()
}

// drop must be called with mu held.
func (l *limited) drop(c *conn) {
	if !l.open[c] {
		return
	}
	delete(l.open, c)
	if l.perClient[c.client]--; l.perClient[c.client] == 0 {
		delete(l.perClient, c.client)
	}
}

// conn records when data last passed through it.
type conn struct {
	net.Conn
	listener *limited
	client   netip.Prefix
	last     atomic.Int64 // since the listener started
}

func (c *conn) touch() { c.last.Store(int64(time.Since(c.listener.begun))) }

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.touch()
	}
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if n > 0 {
		c.touch()
	}
	return n, err
}

func (c *conn) Close() error {
	c.listener.mu.Lock()
	c.listener.drop(c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// Client returns the network that counts as one client: an IPv4 address, or the /64 of an IPv6 address, since one host
// has all of that. All peers of a unix socket are one client.
func Client(address net.Addr) netip.Prefix {
	if address == nil {
		return netip.Prefix{}
	}
	return ClientOf(address.String())
}

// ClientOf is Client for an address as text, such as http.Request.RemoteAddr. Anything else is one client.
func ClientOf(address string) netip.Prefix {
	found, err := netip.ParseAddrPort(address)
	if err != nil {
		return netip.Prefix{}
	}
	ip := found.Addr().Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	client, _ := ip.Prefix(bits) // it has as many
	return client
}
