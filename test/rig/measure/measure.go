// Package measure is how benchmarks measure: by fio, and in turns.
package measure

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/holdfast-storage/holdfast/bench"
)

// Load is what fio does to a file or a device, with an option of its own.
type Load struct{ Name, RW, Block, Option string }

// Loads are all. The sequential ones come first: they would read what the random ones have scattered on a copy-on-write
// file system.
var Loads = []Load{
	{"1 MiB sequential read", "read", "1m", ""},
	{"1 MiB sequential write", "write", "1m", ""},
	{"4 KiB random read", "randread", "4k", ""},
	{"4 KiB random write", "randwrite", "4k", ""},
	{"4 KiB random write, each with fsync", "randwrite", "4k", "--fsync=1"},
}

// Command is that of a load. Every block is touched once at most, and what was written is on the disk when time stops: a
// volume may lie behind the page cache, which is not to be measured.
func (l Load) Command(path string, size int64, runtime time.Duration) []string {
	argv := []string{
		"fio", "--name=bench", "--filename=" + path, fmt.Sprintf("--size=%d", size), "--rw=" + l.RW, "--bs=" + l.Block,
		fmt.Sprintf("--runtime=%d", int(runtime.Seconds())), "--end_fsync=1", "--ioengine=libaio", "--iodepth=32", "--direct=1",
		"--output-format=json",
	}
	if l.Option != "" {
		argv = append(argv, l.Option)
	}
	return argv
}

// Speed returns the bytes per second that a load moved, from what fio printed.
func Speed(printed string) (float64, error) {
	type direction struct {
		Bytes int64   `json:"io_bytes"`
		Speed float64 `json:"bw_bytes"`
	}
	var result struct {
		Jobs []struct{ Read, Write direction }
	}
	out := []byte(printed)
	// Warnings come before the JSON.
	if err := json.Unmarshal(out[max(0, bytes.IndexByte(out, '{')):], &result); err != nil {
		return 0, fmt.Errorf("fio printed no JSON: %w: %s", err, out)
	}
	if len(result.Jobs) != 1 || result.Jobs[0].Read.Bytes+result.Jobs[0].Write.Bytes == 0 {
		return 0, fmt.Errorf("fio moved nothing: %s", out)
	}
	return result.Jobs[0].Read.Speed + result.Jobs[0].Write.Speed, nil
}

// InTurns measures each of some things once in every round, and returns what was measured by thing and round. None is
// always the first.
func InTurns[T any](rounds, things int, measure func(thing, round int) (T, error)) ([][]T, error) {
	all := make([][]T, things)
	for round := range rounds {
		for i := range things {
			thing := (i + round) % things
			one, err := measure(thing, round)
			if err != nil {
				return nil, fmt.Errorf("round %d: %w", round+1, err)
			}
			all[thing] = append(all[thing], one)
		}
	}
	return all, nil
}

// Ratio is the median of the ratios of each round, so that noise that lasts longer than a round cancels.
func Ratio(of, to []float64) float64 {
	ratios := make([]float64, len(of))
	for i := range of {
		ratios[i] = of[i] / to[i]
	}
	return bench.Percentile(ratios, 50)
}
