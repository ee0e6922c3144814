//go:build ceph

package cephfs

import (
	"context"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/ceph"
)

// tidyEvery is how often the trash is emptied of what has expired, and what could not be finished is tried again.
const tidyEvery = 10 * time.Second

// task is what a killed process or a failed attempt has left, on an ID on which no other operation may run.
type task struct {
	id   backend.ID
	verb string
	run  func(context.Context) error
}

// tidy finishes or removes what is half made or half removed, but for what operations work on.
func (b *Backend) tidy(ctx context.Context, p *pool) error {
	tasks, err := b.tasks(ctx, p)
	if err != nil {
		return err
	}
	for _, t := range tasks {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if b.works(t.id) {
			continue
		}
		_, err := do(ctx, b, t.id, t.verb, func(ctx context.Context) (any, error) { return nil, t.run(ctx) })
		if err != nil {
			p.log.Warn("cannot finish what was left; retrying", "id", t.id, "task", t.verb, "error", err)
		}
	}
	return nil
}

func (b *Backend) tasks(ctx context.Context, p *pool) (tasks []task, err error) {
	s, err := look(ctx, p, "looking for what was left", func(g *group) (*survey, error) { return g.survey(ceph.Usage{}) })
	if err != nil {
		return nil, err
	}
	p.report(s.strangers)
	for name := range s.begun {
		if id, _ := idOf(name); !p.isMaking(name) {
			tasks = append(tasks, task{id, "finish", func(ctx context.Context) error { return p.clear(ctx, id) }})
		}
	}
	for _, e := range s.entries {
		if m := e.volume; m != nil && (m.State != ready || m.Copy != nil || m.Charge != m.Size || m.Deleted != nil && p.expired(e.name, m, time.Now())) {
			tasks = append(tasks, task{e.id, "finish", func(ctx context.Context) error { return b.finish(ctx, p, e.name) }})
		}
		for _, snapshot := range e.snapshots {
			if !snapshot.whole() {
				tasks = append(tasks, task{snapshotKey(snapshot.id), "remove", func(ctx context.Context) error { return p.clearSnapshots(ctx, snapshot.id) }})
			}
		}
	}
	return tasks, nil
}

// finish brings one subvolume to the end of what was begun with it.
func (b *Backend) finish(ctx context.Context, p *pool, name string) error {
	e, err := look(ctx, p, "looking at "+name, func(g *group) (*entry, error) { return g.read(name) })
	if err != nil || e == nil || e.volume == nil {
		return err
	}
	switch m := e.volume; {
	case m.State == removing:
		return p.purge(ctx, e)
	case m.State == copying:
		b.resume(p, e)
		return nil
	case m.Deleted != nil:
		return p.expire(ctx, name)
	case m.Copy != nil:
		return p.endCopy(ctx, name, m)
	case m.Charge != m.Size:
		return p.finishGrowth(ctx, e)
	}
	return nil
}

// resume waits for a copy that another process began, and completes its volume, while others go on.
func (b *Backend) resume(p *pool, e *entry) {
	b.keepers.Go(func() {
		_, err := do(b.life, b, e.id, "copy", func(ctx context.Context) (any, error) {
			now, err := look(ctx, p, "looking at "+e.name, func(g *group) (*entry, error) { return g.read(e.name) })
			if err != nil || now == nil || !now.copies() {
				return nil, err
			}
			return p.finishCopy(ctx, e.name, now.volume, b.deletes(e.id))
		})
		if err != nil {
			p.log.Warn("a copy is not complete; retrying", "volume", e.id, "error", err)
		}
	})
}

func (p *pool) isMaking(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.building[name]
}

// report names, once, what lies in the group and is not of Holdfast. It is never touched.
func (p *pool) report(strangers []string) {
	for _, name := range strangers {
		if !p.isMaking(name) && p.firstTime(name) {
			p.log.Warn("not of Holdfast, left alone", "subvolume", name)
		}
	}
}

// firstTime says whether something was not reported yet.
func (p *pool) firstTime(what string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := !p.told[what]
	p.told[what] = true
	return first
}

// keep looks after the pool until the backend is closed.
func (b *Backend) keep() {
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	for {
		select {
		case <-b.life.Done():
			return
		case <-tick.C:
			p, err := b.use(b.life)
			if err == nil {
				err = p.own(b.life, b.token)
			}
			if err == nil {
				err = b.tidy(b.life, p)
			}
			if err != nil && b.life.Err() == nil {
				b.log.Warn("cannot look after the pool; retrying", "error", err)
			}
		}
	}
}
