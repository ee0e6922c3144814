// Package listener bounds what a peer can take of a port or a socket: how many connections there are, how long one may
// be silent, and how long a request and its answer may take.
package listener

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Limit returns a listener with at most so many connections open. One more is never kept waiting, since otherwise the
// client that holds all of them idle would keep out the kubelet's probes: the client with the most connections loses
// the one that was silent for the longest.
func Limit(l net.Listener, most int) net.Listener {
	return &limited{Listener: l, most: most, begun: time.Now(), open: map[*conn]bool{}, of: map[netip.Prefix]int{}}
}

type limited struct {
	net.Listener
	most  int
	begun time.Time

	mu   sync.Mutex
	open map[*conn]bool
	of   map[netip.Prefix]int // how many each client has
}

func (l *limited) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: accepted, listener: l, client: Client(accepted.RemoteAddr())}
	c.heard()
	if victim := l.add(c); victim != nil {
		_ = victim.Close() // its peer may be gone already
	}
	return c, nil
}

// add returns the connection that must go for the new one; nil if there is a place.
func (l *limited) add(c *conn) *conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of[c.client]++ // the new one counts: a client that takes more and more takes them from itself
	var victim *conn
	if len(l.open) >= l.most {
		for other := range l.open {
			if victim == nil || l.before(other, victim) {
				victim = other
			}
		}
		l.drop(victim)
	}
	l.open[c] = true
	return victim
}

// before says whether a connection goes before another.
func (l *limited) before(a, b *conn) bool {
	if l.of[a.client] != l.of[b.client] {
		return l.of[a.client] > l.of[b.client]
	}
	return a.last.Load() < b.last.Load()
}

// drop is called with mu held.
func (l *limited) drop(c *conn) {
	if !l.open[c] {
		return
	}
	delete(l.open, c)
	if l.of[c.client]--; l.of[c.client] == 0 {
		delete(l.of, c.client)
	}
}

// conn knows when something last went through it.
type conn struct {
	net.Conn
	listener *limited
	client   netip.Prefix
	last     atomic.Int64 // since the listener began
}

func (c *conn) heard() { c.last.Store(int64(time.Since(c.listener.begun))) }

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.heard()
	}
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if n > 0 {
		c.heard()
	}
	return n, err
}

func (c *conn) Close() error {
	c.listener.mu.Lock()
	c.listener.drop(c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// Client is whom an address counts for: an IPv4 address, or the /64 of an IPv6 address, as one host has all of that. The
// peers of a unix socket are one client.
func Client(address net.Addr) netip.Prefix {
	if address == nil {
		return netip.Prefix{}
	}
	return ClientOf(address.String())
}

// ClientOf is Client of an address and its port as text, such as http.Request.RemoteAddr. What is none is one client.
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
	client, err := ip.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return client
}
