package ganesha

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// ErrClients means that a list would admit no client.
var ErrClients = errors.New("clients")

// SetClients sets the clients of exports that list none, current and future ones. Clients that are in the old and the
// new list are not disturbed. Once Run was called, it waits until all exports are served so; refusals by Ganesha are
// among the errors, and retried.
func (s *Server) SetClients(ctx context.Context, clients []string) error {
	if len(clients) == 0 {
		return fmt.Errorf("%w: none are named, and no client could use the exports of the NFS server; name at least one", ErrClients)
	}
	if err := (&Export{Clients: clients}).checkClients(); err != nil {
		return fmt.Errorf("%w: %w", ErrClients, err)
	}
	ids, begun := s.recordClients(clients)
	if !begun {
		return nil
	}
	var errs []error
	for _, id := range ids {
		if err := s.awaitApplied(ctx, id); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// recordClients stores the clients, and returns the exports that change.
func (s *Server) recordClients(clients []string) (ids []uint16, begun bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Equal(s.clients, clients) {
		return nil, s.begun
	}
	s.clients = slices.Clone(clients)
	s.changes++
	for id, w := range s.exports {
		if !w.usual {
			continue
		}
		w.Clients, w.change = s.clients, s.changes
		s.exports[id] = w
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids, s.begun
}
