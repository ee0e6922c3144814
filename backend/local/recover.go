package local

import (
	"context"
	"time"
)

// recover undoes or completes what a killed process left: frozen file systems, entries under construction or removal,
// volumes being grown. A failure with one does not affect the others.
func (p *pool) recover(ctx context.Context) error {
	if err := p.engine.Recover(ctx); err != nil {
		if ctx.Err() != nil {
			return err
		}
		p.log.Warn("some remains of a killed process could not be repaired", "error", err)
	}
	soon, cancel := context.WithTimeout(ctx, recoverWithin)
	defer cancel()
	if err := p.sweepBuilding(soon); err != nil {
		return err
	}
	p.emptyTrash(soon, time.Now())
	for _, r := range p.each(volumes) {
		p.finishGrowth(r)
	}
	return nil
}

// finishGrowth completes an interrupted growth.
func (p *pool) finishGrowth(r *record) {
	e, err := p.entry(r)
	if err != nil {
		return // its condition says so
	}
	defer e.Dir.Close()
	changed, err := p.engine.ReconcileSize(e)
	if err != nil {
		p.log.Error("the size of a volume cannot be checked", "volume", r.id, "error", err)
		return
	}
	if changed {
		if err := p.replace(r, e, sizeOf(e)); err != nil {
			p.log.Error("size cannot be recorded", "volume", r.id, "error", err)
		}
	}
}
