// Package ganesha serves directories of this host over NFS 4.1 and 4.2: it runs NFS-Ganesha and the bus by which it is
// configured, and restarts both when one of them dies or hangs.
//
// Clients come through that without noticing more than a pause: exports and recovery state are there before Ganesha
// answers again.
package ganesha

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"
)

// Server serves exports while it Runs.
type Server struct {
	config   Config
	requests chan request
	ended    chan struct{} // closed when Run has returned

	mu      sync.Mutex
	clients []string          // of exports that name none; empty: all
	exports map[uint16]wanted // what is to be served
	changes uint64            // of exports
	begun   bool              // Run was called
	life    *life             // what serves now; nil while nothing does

	restarts uint64 // since Run was called
	tally    tally
}

// wanted is an export with the number of the change that made it what it is. Its clients are filled in.
type wanted struct {
	Export
	change uint64
	usual  bool // it named no clients
}

// request is answered when an export is served as desired, or not served at all if it is removed.
type request struct {
	id   uint16
	done chan error // holds one
}

var (
	// ErrConflict: an export has what another has that lives.
	ErrConflict = errors.New("conflict")
	errEnded    = errors.New("the NFS server has ended")
)

// New returns a server without exports. What is Put before Run is served from the first moment on, so that clients of
// an earlier server with the same Name and RecoveryDir find all that they have mounted.
func New(c Config) (*Server, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	return &Server{config: c, requests: make(chan request), ended: make(chan struct{}), clients: slices.Clone(c.Clients), exports: map[uint16]wanted{}}, nil
}

// Put adds an export or changes it. Once Run was called it returns when the export is served so; if Ganesha refuses,
// what was before stays. When ctx ends first, the export may or may not be served, until the next Put or Remove of it.
func (s *Server) Put(ctx context.Context, e Export) error {
	if err := e.Check(); err != nil {
		return err
	}
	if err := checkRealDirectory(e.Path); err != nil {
		return fmt.Errorf("export %d: %w", e.ID, err)
	}
	now, before, begun, err := s.record(e)
	if err != nil || !begun {
		return err
	}
	err = s.awaitApplied(ctx, e.ID)
	if errors.Is(err, errRefused) && s.withdraw(now, before) {
		return errors.Join(err, s.awaitApplied(ctx, e.ID))
	}
	return err
}

// Remove ends an export: its clients get ESTALE. Repeatable; what is not there is removed. Once Run was called it
// returns when Ganesha has closed the directory.
func (s *Server) Remove(ctx context.Context, id uint16) error {
	s.mu.Lock()
	delete(s.exports, id)
	s.changes++
	begun := s.begun
	s.mu.Unlock()
	if !begun {
		return nil
	}
	return s.awaitApplied(ctx, id)
}

// Ready says whether clients are served now.
func (s *Server) Ready() bool { return s.serving() != nil }

// Clients lists the addresses of the clients that have spoken lately. None that holds anything is silent for longer than
// its lease; right after a start some may yet have to notice it.
func (s *Server) Clients(ctx context.Context) ([]string, error) {
	l := s.serving()
	if l == nil {
		return nil, errors.New("the NFS server is not up; try again when it is")
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.Patience)
	defer cancel()
	return l.admin.clients(ctx, time.Now().Add(-s.config.Lease*3/2))
}

func (s *Server) serving() *life {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.life
}

func (s *Server) serve(l *life) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.life = l
}

// checkRealDirectory keeps what is served from being elsewhere than it says.
func checkRealDirectory(path string) error {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return fmt.Errorf("path %s: %w", path, err)
	}
	if resolved != path {
		return fmt.Errorf("path %s contains a symbolic link to %s; give the real path", path, resolved)
	}
	if info, err := os.Lstat(path); err != nil || !info.IsDir() {
		return fmt.Errorf("path %s is not a directory; only directories are served: %w", path, err)
	}
	return nil
}

// record makes an export desired. The ids by which clients distinguish exports must not be another's.
func (s *Server) record(e Export) (now, before wanted, begun bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, other := range s.exports {
		if id != e.ID && (other.Pseudo == e.Pseudo || other.Filesystem == e.Filesystem) {
			return now, before, false, fmt.Errorf("%w: export %d with pseudo path %s and file system ID %s: export %d has %s and %s; give each its own",
				ErrConflict, e.ID, e.Pseudo, e.Filesystem, id, other.Pseudo, other.Filesystem)
		}
	}
	before = s.exports[e.ID]
	now = before
	usual := len(e.Clients) == 0
	if usual {
		e.Clients = s.clients
	}
	if before.usual != usual || !reflect.DeepEqual(before.Export, e) {
		s.changes++
		e.Clients = slices.Clone(e.Clients)
		now = wanted{e, s.changes, usual}
		s.exports[e.ID] = now
	}
	return now, before, s.begun, nil
}

// withdraw undoes a change that no other has followed.
func (s *Server) withdraw(now, before wanted) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.exports[now.ID].change != now.change || now.change == before.change {
		return false
	}
	s.changes++
	if before.ID == 0 {
		delete(s.exports, now.ID)
	} else {
		s.exports[now.ID] = wanted{before.Export, s.changes, before.usual}
	}
	return true
}

// awaitApplied waits until an export is served as desired, across restarts of Ganesha if need be.
func (s *Server) awaitApplied(ctx context.Context, id uint16) error {
	for {
		r := request{id: id, done: make(chan error, 1)}
		select {
		case s.requests <- r:
		case <-s.ended:
			return errEnded
		case <-ctx.Done():
			return fmt.Errorf("export %d: the NFS server is not up: %w", id, context.Cause(ctx))
		}
		select {
		case err := <-r.done:
			if err == nil || errors.Is(err, errRefused) {
				return err
			}
		case <-ctx.Done():
			return fmt.Errorf("export %d: the NFS server has not applied it: %w", id, context.Cause(ctx))
		}
	}
}
