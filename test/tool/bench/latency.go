package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"
)

// names are those of one life of a volume.
type names struct{ volume, snapshot, restored, cloned string }

// step is one timed part of a volume's life.
type step struct {
	name string
	do   func(context.Context, subject, names) error
}

const lifeSize = gib

// life is that of an xfs volume: a kernel lets only CAP_SYS_RESOURCE grow a mounted ext4.

var life = []step{
	{"create", func(ctx context.Context, s subject, n names) error { return s.create(ctx, n.volume, lifeSize, "xfs") }},
	{"stage + publish", func(ctx context.Context, s subject, n names) error { return s.attach(ctx, n.volume) }},
	{"snapshot", func(ctx context.Context, s subject, n names) error {
		return s.snapshot(ctx, n.snapshot, n.volume)
	}},
	{"restore", func(ctx context.Context, s subject, n names) error {
		return s.restore(ctx, n.restored, n.snapshot, lifeSize)
	}},
	{"clone", func(ctx context.Context, s subject, n names) error {
		return s.clone(ctx, n.cloned, n.volume, lifeSize)
	}},
	{"expand", func(ctx context.Context, s subject, n names) error { return s.expand(ctx, n.volume, 2*lifeSize) }},
	{"unpublish + unstage", func(ctx context.Context, s subject, n names) error { return s.detach(ctx, n.volume) }},
	{"delete", func(ctx context.Context, s subject, n names) error { return s.remove(ctx, n.volume) }},
}

// written is what a volume holds when its first snapshot is taken.
const written = 4 * mib

// latency times every step of many lives, of the driver's volumes and of those that shell commands make, in turns.
func (b *bench) latency(ctx context.Context, t target, scripts, volumes subject) error {
	b.sayf("%s: %d lives of a volume", t, b.calls)
	rows := make([]latencyRow, len(life))
	for i := range life {
		rows[i] = latencyRow{target: t, call: life[i].name}
	}
	for round := range b.calls {
		for i := range 2 {
			s, times := volumes, func(r *latencyRow) *[]time.Duration { return &r.driver }
			if (i+round)%2 == 1 {
				s, times = scripts, func(r *latencyRow) *[]time.Duration { return &r.scripts }
			}
			took, err := live(ctx, s, round)
			if err != nil {
				return fmt.Errorf("life %d: %w", round, err)
			}
			for j := range rows {
				to := times(&rows[j])
				*to = append(*to, took[j])
			}
		}
	}
	b.report.latency = append(b.report.latency, rows...)
	return nil
}

// live takes a volume through its life and returns how long each step took.
func live(ctx context.Context, s subject, round int) ([]time.Duration, error) {
	n := names{fmt.Sprintf("life-%d", round), fmt.Sprintf("snapshot-%d", round), fmt.Sprintf("restored-%d", round), fmt.Sprintf("cloned-%d", round)}
	var took []time.Duration
	for _, step := range life {
		begun := time.Now()
		if err := step.do(ctx, s, n); err != nil {
			return nil, fmt.Errorf("%s: %w", step.name, err)
		}
		took = append(took, time.Since(begun))
		if step.name == "stage + publish" {
			if err := fill(written, filepath.Join(s.path(n.volume), "file")); err != nil {
				return nil, err
			}
		}
	}
	for _, name := range []string{n.restored, n.cloned} {
		if err := s.remove(ctx, name); err != nil {
			return nil, err
		}
	}
	return took, s.removeSnapshot(ctx, n.snapshot)
}
