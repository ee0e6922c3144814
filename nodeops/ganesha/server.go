// Package ganesha exports directories of this host over NFS 4.1 and 4.2. It runs NFS-Ganesha and the D-Bus daemon over
// which it is configured, and restarts both if one of them exits or hangs.
//
// Clients notice only a pause: exports and recovery state are in place before Ganesha answers again.
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

// Server serves exports while Run runs.
type Server struct {
	config   Config
	disk     disk
	requests chan request
	ended    chan struct{} // closed when Run has returned

	mu      sync.Mutex
	clients []string          // of exports that list none; empty: all
	exports map[uint16]wanted // the desired exports
	changes uint64            // number of changes of exports
	begun   bool              // Run was called
	current *process          // the current run of Ganesha; nil if it does not serve

	restarts uint64 // since the call of Run
	tally    tally
}

// wanted is an export with the number of its last change. Clients is filled in.
type wanted struct {
	Export
	change uint64
	usual  bool // it lists no clients
}

// request is answered when an export is served as desired, or removed.
type request struct {
	id   uint16
	done chan error // buffered
}

var (
	// ErrConflict means that the pseudo path or filesystem id of an export belongs to another one.
	ErrConflict = errors.New("conflict")
	errEnded    = errors.New("the NFS server has ended")
)

// New returns a server without exports. Exports that are Put before Run are served from the start, so that clients of
// an earlier server with the same Name and RecoveryDir find what they have mounted.
func New(c Config) (*Server, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	return &Server{config: c, disk: disk{dir: c.RecoveryDir}, requests: make(chan request), ended: make(chan struct{}), clients: slices.Clone(c.Clients), exports: map[uint16]wanted{}}, nil
}

// Put adds or changes an export. Once Run was called it waits until Ganesha serves the change; if Ganesha refuses it,
// the previous export stays. If ctx ends first, it is unknown whether the change is served until the next Put or Remove
// of that export.
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

// Remove ends an export: clients get ESTALE. It is idempotent. Once Run was called it waits until Ganesha has closed
// the directory.
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

// Ready returns whether clients are served now.
func (s *Server) Ready() bool { return s.serving() != nil }

// Clients returns the addresses of clients that have sent requests recently. A client with state is never silent for
// longer than its lease; just after a start, some may not have noticed it yet.
func (s *Server) Clients(ctx context.Context) ([]string, error) {
	l := s.serving()
	if l == nil {
		return nil, errors.New("the NFS server is not up; try again when it is")
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.Patience)
	defer cancel()
	return l.admin.clients(ctx, time.Now().Add(-s.config.Lease*3/2))
}

func (s *Server) serving() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

func (s *Server) serve(l *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = l
}

// checkRealDirectory fails for a path with symlinks.
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

// record stores a desired export. Its pseudo path and filesystem id must not belong to another export.
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

// withdraw undoes a change, unless another one has followed.
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

// awaitApplied waits until an export is served as desired, across restarts of Ganesha.
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
