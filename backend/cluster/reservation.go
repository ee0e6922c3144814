package cluster

import (
	"sync"
	"time"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

// reservations corrects the agents' last reports by later requests, so that volumes that are requested at once are spread.
// It is an estimate for choosing nodes: each agent decides about its own disk.
type reservations struct {
	mu      sync.Mutex
	moves   map[string]map[move]int64 // by node, bytes taken; below 0 for bytes given back
	reports map[string]string         // by node, the version of the last report
	given   map[string]time.Time      // by node, when capacity was last freed
}

// reportLag is the time after which an agent's report certainly includes a change.
const reportLag = 10 * time.Second

// mayHaveMore says whether a node has freed capacity so recently that its reports, which may overtake other writes, may
// not include it.
func (r *reservations) mayHaveMore(node string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.given[node]) < reportLag
}

// gave is called with mu held.
func (r *reservations) gave(node string) {
	if r.given == nil {
		r.given = map[string]time.Time{}
	}
	r.given[node] = time.Now()
}

// move is a change that an agent's report may not have yet.
type move struct {
	id      backend.ID
	pool    string
	version string // of the object at the change; empty while the volume is being created
}

// take counts a requested volume.
func (r *reservations) reserve(node, pool string, id backend.ID, bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note(node, move{id: id, pool: pool}, bytes)
}

// release ends that, when the volume is created or will not be.
func (r *reservations) release(node string, id backend.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(node, id)
}

// forget is called with mu held.
func (r *reservations) forget(node string, id backend.ID) {
	for m := range r.moves[node] {
		if m.id == id && m.version == "" {
			delete(r.moves[node], m)
		}
	}
}

// note is called with mu held.
func (r *reservations) note(node string, m move, bytes int64) {
	if m.version != "" && !newer(m.version, r.reports[node]) {
		return // the watch of volumes is behind that of nodes
	}
	if r.moves == nil {
		r.moves = map[string]map[move]int64{}
	}
	if r.moves[node] == nil {
		r.moves[node] = map[move]int64{}
	}
	r.moves[node][m] = bytes
}

// reported drops the changes that a newer report includes.
func (r *reservations) reported(n *v1beta1.StorageNode) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reports == nil {
		r.reports = map[string]string{}
	}
	r.reports[n.Name] = n.ResourceVersion
	for m := range r.moves[n.Name] {
		if m.version != "" && !newer(m.version, n.ResourceVersion) {
			delete(r.moves[n.Name], m)
		}
	}
}

// saw records the change of a volume from one state to the next; either may be nil.
func (r *reservations) saw(old, now *v1beta1.Volume) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now == nil {
		r.forget(old.Spec.Node, backend.ID(old.Name))
		if isOnDisk(old) {
			r.gave(old.Spec.Node)
			r.note(old.Spec.Node, move{backend.ID(old.Name), old.Status.Pool, old.ResourceVersion}, -v1beta1.Bytes(old.Status.Size))
		}
		return
	}
	id := backend.ID(now.Name)
	switch {
	case !isOnDisk(now):
		r.note(now.Spec.Node, move{id: id, pool: now.Spec.Pool}, wanted(now))
	case old != nil && !isOnDisk(old):
		r.forget(now.Spec.Node, id)
		r.note(now.Spec.Node, move{id, now.Status.Pool, now.ResourceVersion}, v1beta1.Bytes(now.Status.Size))
	case old != nil && v1beta1.Bytes(now.Status.Size) != v1beta1.Bytes(old.Status.Size):
		r.note(now.Spec.Node, move{id, now.Status.Pool, now.ResourceVersion}, v1beta1.Bytes(now.Status.Size)-v1beta1.Bytes(old.Status.Size))
	}
}

// taken returns the capacity that was taken from a pool since its report; a volume that names no pool is in the first.
func (r *reservations) reserved(node, pool string, first bool) (sum int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for m, bytes := range r.moves[node] {
		if m.pool == pool || m.pool == "" && first {
			sum += bytes
		}
	}
	return sum
}
