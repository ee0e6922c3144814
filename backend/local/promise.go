package local

import (
	"context"
	"fmt"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/local/engine"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// promise counts the size of an entry that is going to be built at r.place, or fails. One lock covers the sum and the
// decision, so that concurrent promises never count the same space.
func (p *pool) promise(ctx context.Context, r *record) error {
	usage, err := p.measure(ctx)
	if err != nil {
		return err
	}
	p.mu.Lock()
	fits := r.charge <= p.promisable(usage, usage.Available, p.promised()) && !lacksInodes(usage, r.inodes())
	if fits {
		p.building[r.place] = r
	}
	p.mu.Unlock()
	if fits {
		return nil
	}
	return p.makeRoom(ctx, r)
}

// exhausted returns the error of a refused promise. p.mu must be held.
func (p *pool) exhausted(usage nodeops.FSUsage, r *record) error {
	c, trash := p.capacity(usage), ""
	if n := len(p.trash); n > 0 {
		trash = fmt.Sprintf(", even if the %d deleted volumes in the trash were removed", n)
	}
	return fmt.Errorf("%w: %s needs %s of pool %s, and %s are free%s (%s in all, %s promised, %s other data, %s reserved, overcommit %g); delete volumes or snapshots, add a disk, or raise overcommit",
		backend.ErrExhausted, r.id, backend.Readable(r.charge), p.Name, backend.Readable(c.Available), trash, backend.Readable(c.Total), backend.Readable(c.Promised),
		backend.Readable(p.foreign), backend.Readable(p.reserve.Of(c.Total)), p.Overcommit)
}

func (p *pool) measure(ctx context.Context) (nodeops.FSUsage, error) {
	usage, err := nodeops.Statfs(ctx, p.Path)
	if err != nil {
		return usage, fmt.Errorf("%w: pool %s: %w", backend.ErrUnavailable, p.Name, err)
	}
	return usage, nil
}

// capacity returns the capacity, which includes as available what removing the trash would free. p.mu must be held.
func (p *pool) capacity(usage nodeops.FSUsage) backend.Capacity {
	promised := p.promised()
	charge, gives := p.trashTotal()
	available := p.promisable(usage, usage.Available+gives, promised-charge)
	return backend.Capacity{
		Total: usage.Used + usage.Available, Promised: promised, Used: usage.Used,
		Available: available, Smallest: backend.SizeUnit, Largest: available,
	}
}

// promisable returns what can still be promised where that many bytes are free. p.mu must be held.
func (p *pool) promisable(usage nodeops.FSUsage, free, promised int64) int64 {
	total := usage.Used + usage.Available // excludes blocks that the file system reserves
	return backend.Room{Total: total, Others: p.foreign, Free: free}.Promisable(p.Overcommit, p.reserve, promised)
}

// promised returns the sum over all entries, including those under construction. p.mu must be held.
func (p *pool) promised() (sum int64) {
	for _, entries := range p.entries {
		for _, r := range entries {
			sum += r.charge
		}
	}
	for _, r := range p.trash {
		sum += r.charge
	}
	for _, r := range p.building {
		sum += r.charge
	}
	return sum
}

// survey measures the data of other programs in the file system: its used space, less the space of the pool's entries.
func (p *pool) survey(ctx context.Context) error {
	before, err := p.measure(ctx)
	if err != nil {
		return err
	}
	own := p.measureOwn()
	p.measureFreeable()
	after, err := p.measure(ctx)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.building) > len(p.leftovers) && p.surveyed {
		return nil // entries under construction would count as data of others; the next survey is soon
	}
	p.foreign, p.surveyed = max(0, min(before.Used, after.Used)-own), true
	return nil
}

// measureOwn returns the space of the pool's entries. Snapshots are measured only once, since there may be very many.
func (p *pool) measureOwn() (own int64) {
	p.mu.Lock()
	known := p.measured
	p.mu.Unlock()
	measured := map[string]int64{}
	for _, r := range p.all() {
		used, again := known[r.place]
		if !again {
			var c backend.Condition
			if used, c, _ = p.inspect(r); c.Abnormal {
				own += used
				continue
			}
		}
		if r.kind == snapshots {
			measured[r.place] = used
		}
		own += used
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.measured = measured
	return own
}

// all returns every record that uses space.
func (p *pool) all() []*record {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []*record
	for _, entries := range p.entries {
		for _, r := range entries {
			all = append(all, r)
		}
	}
	for _, r := range p.trash {
		all = append(all, r)
	}
	for _, l := range p.leftovers {
		all = append(all, l.record)
	}
	return all
}

// inspect returns the used space of an entry, its health and how it is accessed.
func (p *pool) inspect(r *record) (used int64, c backend.Condition, a backend.Access) {
	if r.damage != nil {
		return r.charge, backend.Condition{Abnormal: true, Message: r.damage.Error()}, a
	}
	if r.kind == groups {
		return 0, c, a
	}
	e, err := p.entry(r)
	if err != nil {
		return 0, backend.Condition{Abnormal: true, Message: err.Error()}, a
	}
	defer e.Dir.Close()
	used, c = p.engine.Inspect(e)
	return used, c, p.engine.Access(e)
}

// source opens an entry of which a copy is to be made. The caller closes its Dir.
func (p *pool) source(r *record) (*engine.Entry, error) {
	if r.meta != nil && r.meta.Incomplete {
		return nil, backend.LacksContent(r.id)
	}
	return p.entry(r)
}

// entry opens an entry for its engine. The caller closes its Dir.
func (p *pool) entry(r *record) (*engine.Entry, error) {
	if r.damage != nil {
		return nil, fmt.Errorf("%w: %w", backend.ErrPrecondition, r.damage)
	}
	dir, err := p.root.OpenRoot(r.place)
	if err != nil {
		return nil, fmt.Errorf("%w: %s of pool %s: %w", backend.ErrPrecondition, r.place, p.Name, err)
	}
	m := *r.meta
	return &engine.Entry{ID: r.id, Dir: dir, Content: &m.Content, Save: func() error { return writeFile(dir, metaFile, &m) }}, nil
}
