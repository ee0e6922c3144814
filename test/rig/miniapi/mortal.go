package miniapi

import (
	"errors"
	"net/http"
	"sync"

	"k8s.io/client-go/rest"
)

// Mortal is a client that can be killed at one of its writes. The API is then as after the write before.
type Mortal struct {
	// At is the write that is not carried out any more, from 1 on; 0: none.
	At int
	// Died is called once, at that write.
	Died func()

	mu     sync.Mutex
	writes int
	dead   bool
	next   http.RoundTripper
}

var errDead = errors.New("this client was killed")

// Mortal returns a configuration for the clients that are to die together.
func (s *Server) Mortal(m *Mortal) *rest.Config {
	config := s.Config()
	config.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
		m.next = next
		return m
	}
	return config
}

// Writes counts the writes, with the last one.
func (m *Mortal) Writes() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.writes
}

// RoundTrip is for http.Client.
func (m *Mortal) RoundTrip(r *http.Request) (*http.Response, error) {
	last, err := m.count(r.Method)
	if err != nil {
		return nil, err
	}
	if !last {
		return m.next.RoundTrip(r)
	}
	m.Died()
	return nil, errDead
}

func (m *Mortal) count(method string) (last bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.dead:
		return false, errDead
	case method == http.MethodGet:
		return false, nil
	}
	m.writes++
	m.dead = m.writes == m.At
	return m.dead, nil
}
