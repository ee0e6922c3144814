// Package miniapi is a Kubernetes API in memory, for tests: objects of any kind over HTTP, with what controllers
// depend on. Resource versions and conflicts, generations, finalizers, preconditions, the status subresource, merge
// patches, a simple server-side apply, selectors, and watches that can be broken and held up.
//
// It neither validates nor defaults, and knows no roles: for those there is a real cluster.
package miniapi

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

// Server is one API.
type Server struct {
	http *httptest.Server

	mu       sync.Mutex
	changed  *sync.Cond // broadcast when history grows or held, broken or closed change
	version  int
	objects  map[key]object
	history  []event
	held     bool
	breaks   int // how often all watches were broken
	closed   bool
	requests map[string]int
	logs     map[string]*logFile // by namespace/pod
	written  []logChange
}

// key names an object. The name is empty in that of a whole resource.
type key struct{ group, resource, namespace, name string }

func (k key) of() key { return key{group: k.group, resource: k.resource} }

// event is one change of one object; old is what it was before, nil for a new one.
type event struct {
	version int
	kind    string
	key     key
	object  object
	old     object
}

// New serves an empty API until the test ends.
func New(t testing.TB) *Server {
	s := &Server{objects: map[key]object{}, requests: map[string]int{}, logs: map[string]*logFile{}}
	s.changed = sync.NewCond(&s.mu)
	s.http = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

// Close ends the API and every watch.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.changed.Broadcast()
	s.mu.Unlock()
	s.http.CloseClientConnections()
	s.http.Close()
}

// Config is for clients, without a limit on their rate.
func (s *Server) Config() *rest.Config {
	return &rest.Config{Host: s.http.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
}

// BreakWatches ends every watch, as an API server that restarts does.
func (s *Server) BreakWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.breaks++
	s.changed.Broadcast()
}

// HoldWatches keeps events back, so that caches are out of date, until the returned function is called.
func (s *Server) HoldWatches() (release func()) {
	s.setHeld(true)
	return func() { s.setHeld(false) }
}

func (s *Server) setHeld(held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = held
	s.changed.Broadcast()
}

// Requests counts what was asked, by verb, resource and subresource, such as "update volumes/status", and forgets it.
func (s *Server) Requests() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	counted := s.requests
	s.requests = map[string]int{}
	return counted
}
