package local

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/local/engine"
)

// A leftover is an incomplete or deleted entry that could not be removed. Its space stays promised, its removal is
// retried with back-off, and it does not block other operations.

// leftover is a record of p.building that no operation makes or restores any more. Its removal may be running.
type leftover struct {
	record *record
	err    error // why it was not removed
	wait   time.Duration
	next   time.Time
}

const (
	// removeWithin limits how long one removal may block others; a later one continues it.
	removeWithin = time.Minute
	// recoverWithin limits how long removals may delay the opening of a pool.
	recoverWithin = 10 * time.Second
	// The back-off of a leftover: doubled from the first to the longest.
	firstWait, longestWait = keepEvery, time.Hour
)

// keepLeftover records an entry that could not be removed.
func (p *pool) keepLeftover(r *record, err error, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.building[r.place] = r
	p.leftovers[r.place] = &leftover{record: r, err: err, wait: wait, next: time.Now().Add(wait)}
}

// removeLeftovers retries the leftovers that are due.
func (p *pool) removeLeftovers(ctx context.Context, now time.Time) {
	for _, l := range p.dueLeftovers(now) {
		if ctx.Err() != nil {
			return
		}
		p.retryLeftover(ctx, l)
	}
}

func (p *pool) dueLeftovers(now time.Time) (due []*leftover) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.leftovers {
		if !now.Before(l.next) {
			due = append(due, l)
		}
	}
	return due
}

// retryLeftover must not run twice for one tree at a time, which only p.maintaining ensures.
func (p *pool) retryLeftover(ctx context.Context, l *leftover) {
	r := l.record
	err := p.leaveTrash(r)
	if err == nil {
		err = p.discardSoon(ctx, r)
	}
	if err == nil {
		p.log.Info("removed a leftover", "place", r.place)
		p.forget(r)
		return
	}
	wait := min(2*l.wait, longestWait)
	if errors.Is(err, context.DeadlineExceeded) { // it makes progress, but needs more time
		wait = firstWait
	} else if l.err == nil || l.err.Error() != err.Error() {
		p.log.Warn("a leftover cannot be removed; retrying, less and less often", "place", r.place, "error", err)
	}
	p.keepLeftover(r, err, wait)
}

// leaveTrash moves an entry out of the trash on disk, if its eviction could not: then nothing is where it should be.
// One of the previous release that was never in the trash has a name without a time.
func (p *pool) leaveTrash(r *record) error {
	if strings.Count(path.Base(r.place), ".") < 2 {
		return nil
	}
	err := p.root.Rename(path.Join(trashDir, path.Base(r.place)), r.place)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// discardSoon is discard with a time limit.
func (p *pool) discardSoon(ctx context.Context, r *record) error {
	ctx, cancel := context.WithTimeoutCause(ctx, removeWithin, errors.New("it takes long"))
	defer cancel()
	return p.discard(ctx, r)
}

// sweepBuilding removes entries that are incomplete or partly removed. One that cannot be removed within the limit
// becomes a leftover.
func (p *pool) sweepBuilding(ctx context.Context) error {
	names, err := readNames(p.root, buildingDir)
	if err != nil {
		return err
	}
	for _, name := range names {
		k, rest, _ := strings.Cut(name, ".")
		s, _, _ := strings.Cut(rest, ".")
		id, err := backend.ParseID(s)
		if err != nil || !slices.Contains([]kind{volumes, snapshots, groups}, kind(k)) {
			p.log.Warn("not an entry, left alone", "path", path.Join(buildingDir, name))
			continue
		}
		r := p.readLeftover(kind(k), id, path.Join(buildingDir, name))
		if err := p.discardSoon(ctx, r); err != nil {
			p.log.Warn("the remains of a killed process cannot be removed; retrying", "place", path.Join(p.Path, r.place), "error", err)
			p.keepLeftover(r, err, firstWait)
			continue
		}
		p.log.Info("removed the remains of a killed process", "place", r.place)
	}
	return nil
}

// readLeftover is read for an entry that may be incomplete.
func (p *pool) readLeftover(k kind, id backend.ID, place string) *record {
	r := &record{kind: k, id: id, place: place}
	dir, err := p.root.OpenRoot(place)
	if err == nil {
		defer dir.Close()
		r.meta, err = readMeta(dir, id)
	}
	switch {
	case err == nil:
		r.charge = r.meta.Charge
	case dir != nil:
		r.charge, _ = p.engine.Inspect(&engine.Entry{ID: id, Dir: dir, Content: &engine.Content{}})
	}
	r.damage = err
	return r
}

func (p *pool) leftoverCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.leftovers)
}
