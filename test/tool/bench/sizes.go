package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"
)

// smallSize is less than xfs can have.
const smallSize = 64 * mib

// sizes times snapshots and clones of a small and of a large volume, in turns.
func (b *bench) sizes(ctx context.Context, t target, volumes subject) error {
	b.sayf("%s: snapshots and clones of a small and a large volume", t)
	contents := map[string]struct{ size, written int64 }{"small": {smallSize, smallSize / 2}, "large": {b.large, b.written}}
	for name, c := range contents {
		if err := begin(ctx, volumes, name, c.size, "ext4"); err != nil {
			return err
		}
		if err := fill(c.written, filepath.Join(volumes.path(name), "file")); err != nil {
			return err
		}
	}
	snapshots := sizesRow{target: t, call: "snapshot", times: map[string][]time.Duration{}}
	clones := sizesRow{target: t, call: "clone", times: map[string][]time.Duration{}}
	for round := range b.copies {
		for name, c := range contents {
			snapshot, clone, err := copies(ctx, volumes, name, c.size, round)
			if err != nil {
				return err
			}
			snapshots.times[name] = append(snapshots.times[name], snapshot)
			clones.times[name] = append(clones.times[name], clone)
		}
	}
	b.report.sizes = append(b.report.sizes, snapshots, clones)
	for name := range contents {
		if err := end(ctx, volumes, name); err != nil {
			return err
		}
	}
	return nil
}

// copies times one snapshot and one clone of a volume and removes them.
func copies(ctx context.Context, volumes subject, of string, size int64, round int) (snapshot, clone time.Duration, err error) {
	name := fmt.Sprintf("%s-copy-%d", of, round)
	begun := time.Now()
	if err := volumes.snapshot(ctx, name, of); err != nil {
		return 0, 0, err
	}
	snapshot = time.Since(begun)
	begun = time.Now()
	if err := volumes.clone(ctx, name, of, size); err != nil {
		return 0, 0, err
	}
	clone = time.Since(begun)
	if err := volumes.remove(ctx, name); err != nil {
		return 0, 0, err
	}
	return snapshot, clone, volumes.removeSnapshot(ctx, name)
}
