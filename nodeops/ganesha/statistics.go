package ganesha

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"
)

// Statistics are of a server since it Runs.
type Statistics struct {
	Up       bool
	InGrace  bool // only locks and opens from before the start are granted
	Exports  int
	Clients  int
	Restarts uint64
	Traffic  map[Way]Traffic
}

// Way is how data went.
type Way struct {
	Version string // of NFS: 4.1 or 4.2
	Written bool   // else it was read
}

// Traffic only grows, over restarts of Ganesha too.
type Traffic struct{ Operations, Bytes, Errors uint64 }

func (t Traffic) plus(more Traffic) Traffic {
	return Traffic{t.Operations + more.Operations, t.Bytes + more.Bytes, t.Errors + more.Errors}
}

// since is the increase since a count; a smaller count was reset.
func (t Traffic) since(before Traffic) Traffic {
	if t.Operations < before.Operations || t.Bytes < before.Bytes || t.Errors < before.Errors {
		return t
	}
	return Traffic{t.Operations - before.Operations, t.Bytes - before.Bytes, t.Errors - before.Errors}
}

// tally sums up what Ganesha counts for each export from its start on.
type tally struct {
	of    *life
	last  map[exportWay]Traffic
	total map[Way]Traffic
}

type exportWay struct {
	export uint16
	Way
}

func (t *tally) add(of *life, now map[exportWay]Traffic) map[Way]Traffic {
	if t.of != of {
		t.of, t.last = of, nil
	}
	total := make(map[Way]Traffic, len(t.total))
	maps.Copy(total, t.total)
	for key, traffic := range now {
		total[key.Way] = total[key.Way].plus(traffic.since(t.last[key]))
	}
	t.last, t.total = now, total
	return total
}

// Statistics asks Ganesha. With an error they are what is known without it.
func (s *Server) Statistics(ctx context.Context) (Statistics, error) {
	s.mu.Lock()
	l, all := s.life, Statistics{Up: s.life != nil, Restarts: s.restarts, Traffic: s.tally.total}
	s.mu.Unlock()
	if l == nil {
		return all, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.Patience)
	defer cancel()
	exports, errExports := l.admin.shown(ctx)
	clients, errClients := l.admin.clients(ctx, time.Now().Add(-s.config.Lease*3/2))
	grace, errGrace := l.admin.inGrace(ctx)
	traffic, errTraffic := l.admin.traffic(ctx)
	if err := errors.Join(errExports, errClients, errGrace, errTraffic); err != nil {
		return all, fmt.Errorf("statistics of the NFS server: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all.InGrace, all.Exports, all.Clients = grace, len(exports), len(clients)
	all.Traffic = s.tally.add(l, traffic)
	return all, nil
}
