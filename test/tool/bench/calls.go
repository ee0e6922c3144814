package main

import (
	"context"
	"fmt"

	"github.com/holdfast-storage/holdfast/bench"
	"github.com/holdfast-storage/holdfast/test/rig/measure"
)

// life is that of an xfs volume: a kernel lets only CAP_SYS_RESOURCE grow a mounted ext4.
func life(round int) []call {
	volume, snapshot := fmt.Sprintf("life-%d", round), fmt.Sprintf("snapshot-%d", round)
	restored, cloned := fmt.Sprintf("restored-%d", round), fmt.Sprintf("cloned-%d", round)
	return []call{
		{title: "create", verb: "create", name: volume, size: gib, fs: "xfs"},
		{title: "stage + publish", verb: "attach", name: volume},
		{verb: "write", name: volume, size: 4 * mib},
		{title: "snapshot", verb: "snapshot", name: snapshot, of: volume},
		{title: "restore", verb: "restore", name: restored, of: snapshot, size: gib},
		{title: "clone", verb: "clone", name: cloned, of: volume, size: gib},
		{title: "expand", verb: "expand", name: volume, size: 2 * gib},
		{title: "unpublish + unstage", verb: "detach", name: volume},
		{title: "delete", verb: "remove", name: volume},
		{verb: "remove", name: restored},
		{verb: "remove", name: cloned},
		{verb: "removeSnapshot", name: snapshot},
	}
}

// lives times every call of many lives, of the driver's volumes and of those that shell commands make, in turns.
func (b *runner) lives(ctx context.Context, t target, scripts, volumes subject) error {
	b.sayf("%s: %d lives of a volume", t, b.calls)
	subjects := []subject{volumes, scripts}
	times, err := measure.InTurns(b.calls, len(subjects), func(i, round int) ([]float64, error) {
		return perform(ctx, subjects[i], life(round)...)
	})
	if err != nil {
		return err
	}
	for i, c := range life(0) {
		if c.title != "" {
			driver, shell := of(i, times[0]), of(i, times[1])
			b.report.calls.add(fmt.Sprintf("%s, %s", t, c.title), took(driver, 50), took(driver, 99), took(shell, 50), took(shell, 99),
				bold(bench.Percentile(driver, 50)/bench.Percentile(shell, 50)))
		}
	}
	return nil
}

// of returns the times of one call in all rounds.
func of(call int, rounds [][]float64) (all []float64) {
	for _, times := range rounds {
		all = append(all, times[call])
	}
	return all
}

// smallSize is less than xfs can have.
const smallSize = 64 * mib

// sizes times snapshots and clones of a small and of a large volume, in turns.
func (b *runner) sizes(ctx context.Context, t target, volumes subject) error {
	b.sayf("%s: snapshots and clones of a small and a large volume", t)
	contents := []call{{name: "small", size: smallSize}, {name: "large", size: b.large}}
	for i, written := range []int64{smallSize / 2, b.written} {
		if err := begin(ctx, volumes, contents[i].name, contents[i].size, "ext4"); err != nil {
			return err
		}
		if _, err := perform(ctx, volumes, call{verb: "write", name: contents[i].name, size: written}); err != nil {
			return err
		}
	}
	times, err := measure.InTurns(b.copies, len(contents), func(i, round int) ([]float64, error) {
		c, name := contents[i], fmt.Sprintf("%s-copy-%d", contents[i].name, round)
		return perform(ctx, volumes, call{verb: "snapshot", name: name, of: c.name}, call{verb: "clone", name: name, of: c.name, size: c.size},
			call{verb: "remove", name: name}, call{verb: "removeSnapshot", name: name})
	})
	if err != nil {
		return err
	}
	for i, title := range []string{"snapshot", "clone"} {
		small, large := of(i, times[0]), of(i, times[1])
		b.report.copies.add(fmt.Sprintf("%s, %s", t, title), took(small, 50), took(large, 50), bold(measure.Ratio(large, small)))
	}
	for _, c := range contents {
		if err := end(ctx, volumes, c.name); err != nil {
			return err
		}
	}
	return nil
}
