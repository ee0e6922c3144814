// Package miniapi is a Kubernetes API in memory, for tests: objects of any kind, with what controllers depend on.
// Resource versions and conflicts, generations, finalizers, preconditions, the status subresource, merge patches, a
// simple server-side apply, selectors, and watches that can be broken and held up.
//
// Clients of this process reach it without a socket, so that a test can run them in a bubble of testing/synctest, where
// time passes only while all wait. Clients of another process reach it at its URL.
//
// It neither validates nor defaults, and knows no roles: for those there is a real cluster.
package miniapi

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
)

func init() { //nolint:gochecknoinits // it is for all that import this package
	// Without the handler that sleeps when errors come soon after each other, by a clock that all bubbles would share.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] //nolint:reassign // the variable is there for that
}

// Server is one API.
type Server struct {
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
	listens  *httptest.Server // nil until its URL is needed
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

// New is an empty API until the test ends.
func New(t testing.TB) *Server {
	s := &Server{objects: map[key]object{}, requests: map[string]int{}, logs: map[string]*logFile{}}
	s.changed = sync.NewCond(&s.mu)
	t.Cleanup(s.Close)
	return s
}

// URL is where clients of other processes reach the API.
func (s *Server) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listens == nil {
		s.listens = httptest.NewServer(http.HandlerFunc(s.serve))
	}
	return s.listens.URL
}

// Close ends the API and every watch.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.changed.Broadcast()
	listens := s.listens
	s.mu.Unlock()
	if listens != nil {
		listens.CloseClientConnections()
		listens.Close()
	}
}

func (s *Server) ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// Config is for clients of this process, without a limit on their rate.
func (s *Server) Config() *rest.Config {
	return &rest.Config{Host: "http://miniapi", Transport: transport{s}, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
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
