package ganesha

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"
)

// Statistics are counted from the call of Run on.
type Statistics struct {
	Up       bool
	InGrace  bool // the grace period is running
	Exports  int
	Clients  int
	Restarts uint64
	Traffic  map[Way]Traffic
}

// Way is an NFS version and direction of data.
type Way struct {
	Version string // 4.1 or 4.2
	Written bool   // false: read
}

// Traffic only increases, also across restarts of Ganesha.
type Traffic struct{ Operations, Bytes, Errors uint64 }

func (t Traffic) plus(more Traffic) Traffic {
	return Traffic{t.Operations + more.Operations, t.Bytes + more.Bytes, t.Errors + more.Errors}
}

// since returns the increase since an earlier count. A smaller count means a reset.
func (t Traffic) since(before Traffic) Traffic {
	if t.Operations < before.Operations || t.Bytes < before.Bytes || t.Errors < before.Errors {
		return t
	}
	return Traffic{t.Operations - before.Operations, t.Bytes - before.Bytes, t.Errors - before.Errors}
}

// tally accumulates the counters of each export over the runs of Ganesha.
type tally struct {
	of    *process
	last  map[exportWay]Traffic
	total map[Way]Traffic
}

type exportWay struct {
	export uint16
	Way
}

func (t *tally) add(of *process, now map[exportWay]Traffic) map[Way]Traffic {
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

// Statistics queries Ganesha. With an error it returns what is known without it.
func (s *Server) Statistics(ctx context.Context) (Statistics, error) {
	s.mu.Lock()
	l, all := s.current, Statistics{Up: s.current != nil, Restarts: s.restarts, Traffic: s.tally.total}
	s.mu.Unlock()
	if l == nil {
		return all, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.Patience)
	defer cancel()
	exports, errExports := l.admin.exportIDs(ctx)
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
