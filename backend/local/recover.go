package local

import (
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
)

// recover undoes or completes what a killed process left: file systems it held still, entries it was building or
// removing, volumes it was growing.
func (p *pool) recover(ctx context.Context) error {
	if err := p.engine.Recover(ctx); err != nil {
		return err
	}
	if err := p.sweepBuilding(ctx); err != nil {
		return err
	}
	p.emptyTrash(ctx, time.Now())
	for _, r := range p.each(volumes) {
		p.settle(r)
	}
	return nil
}

// sweepBuilding removes half made and half removed entries. One that cannot be removed keeps its room promised.
func (p *pool) sweepBuilding(ctx context.Context) error {
	names, err := readNames(p.root, buildingDir)
	if err != nil {
		return err
	}
	for _, name := range names {
		k, rest, _ := strings.Cut(name, ".")
		id, _, _ := strings.Cut(rest, ".")
		r := &record{kind: kind(k), id: backend.ID(id), place: path.Join(buildingDir, name)}
		if _, err := backend.ParseID(id); err != nil {
			return fmt.Errorf("%w: %s was not put there by Holdfast; move it away", backend.ErrUnavailable, path.Join(p.Path, r.place))
		}
		if err := p.discard(ctx, r); err != nil {
			return fmt.Errorf("removing %s, which a killed process left: %w", path.Join(p.Path, r.place), err)
		}
		p.log.Info("removed what a killed process left", "place", r.place)
	}
	return nil
}

// settle completes a growth that was cut short.
func (p *pool) settle(r *record) {
	e, err := p.entry(r)
	if err != nil {
		return // its condition says so
	}
	defer e.Dir.Close()
	changed, err := p.engine.Settle(e)
	if err != nil {
		p.log.Error("volume cannot be settled", "volume", r.id, "error", err)
		return
	}
	if changed {
		if err := p.replace(r, e); err != nil {
			p.log.Error("size cannot be recorded", "volume", r.id, "error", err)
		}
	}
}
