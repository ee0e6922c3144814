package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// workload is what fio does to a file, with an option of its own.
type workload struct{ name, rw, block, option string }

// The sequential ones come first: they would read what the random ones have scattered on a copy-on-write file system.
var workloads = []workload{
	{"1 MiB sequential read", "read", "1m", ""},
	{"1 MiB sequential write", "write", "1m", ""},
	{"4 KiB random read", "randread", "4k", ""},
	{"4 KiB random write", "randwrite", "4k", ""},
	{"4 KiB random write, each with fsync", "randwrite", "4k", "--fsync=1"},
}

// throughput runs fio on a file of the raw pool, of a volume that shell commands made, and of a volume, in turns.
func (b *bench) throughput(ctx context.Context, t target, raw string, scripts, volumes subject) error {
	const name = "fio"
	files := []string{filepath.Join(raw, "file"), filepath.Join(scripts.path(name), "file"), filepath.Join(volumes.path(name), "file")}
	for _, s := range []subject{scripts, volumes} {
		if err := begin(ctx, s, name, b.file+gib, "xfs"); err != nil {
			return err
		}
	}
	if err := fill(b.file, files...); err != nil {
		return err
	}
	for _, w := range workloads {
		b.sayf("%s: fio %s", t, w.name)
		speeds, err := b.inTurns(ctx, w, files)
		if err != nil {
			return err
		}
		b.report.throughput = append(b.report.throughput, throughputRow{t, w.name, speeds[0], speeds[1], speeds[2]})
	}
	for _, s := range []subject{scripts, volumes} {
		if err := end(ctx, s, name); err != nil {
			return err
		}
	}
	return os.Remove(files[0])
}

// inTurns returns the speed on each file in each round; no one is always first.
func (b *bench) inTurns(ctx context.Context, w workload, files []string) ([][]float64, error) {
	speeds := make([][]float64, len(files))
	for round := range b.rounds {
		for i := range files {
			i = (i + round) % len(files)
			speed, err := b.fio(ctx, w, files[i])
			if err != nil {
				return nil, err
			}
			speeds[i] = append(speeds[i], speed)
		}
	}
	return speeds, nil
}

// fio returns the bytes per second that a workload moves. Every block is touched once at most, from empty caches, and
// what was written is on the disk when time stops: a volume may lie behind the page cache, which is not to be measured.
func (b *bench) fio(ctx context.Context, w workload, file string) (float64, error) {
	out, err := shell(ctx, `sync && echo 3 >/proc/sys/vm/drop_caches &&
		fio --name=bench --filename="$1" --size="$2" --rw="$3" --bs="$4" --runtime="$5" --end_fsync=1 --ioengine=libaio --iodepth=32 --direct=1 --output-format=json $6`,
		file, strconv.FormatInt(b.file, 10), w.rw, w.block, strconv.Itoa(int(b.runtime.Seconds())), w.option)
	if err != nil {
		return 0, err
	}
	return parseFio([]byte(out))
}

func parseFio(out []byte) (float64, error) {
	var result struct {
		Jobs []struct {
			Read  direction `json:"read"`
			Write direction `json:"write"`
		} `json:"jobs"`
	}
	// Warnings come before the JSON.
	if err := json.Unmarshal(out[max(0, bytes.IndexByte(out, '{')):], &result); err != nil {
		return 0, fmt.Errorf("fio printed no JSON: %w: %s", err, out)
	}
	if len(result.Jobs) != 1 || result.Jobs[0].Read.Bytes+result.Jobs[0].Write.Bytes == 0 {
		return 0, fmt.Errorf("fio moved nothing: %s", out)
	}
	return result.Jobs[0].Read.Speed + result.Jobs[0].Write.Speed, nil
}

type direction struct {
	Bytes int64   `json:"io_bytes"`
	Speed float64 `json:"bw_bytes"`
}

// fillStep is how much is written to each file in turn: so no file has a better place on the disk, or is older.
const fillStep = 64 * mib

// fill writes files full of something that is not zero, in turns, and waits until it is on the disk.
func fill(size int64, files ...string) (err error) {
	var open []*os.File
	defer func() {
		for _, f := range open {
			err = errors.Join(err, f.Close())
		}
	}()
	for _, file := range files {
		f, err := os.Create(file)
		if err != nil {
			return err
		}
		open = append(open, f)
	}
	chunk := bytes.Repeat([]byte("holdfast"), mib/8)
	for written := int64(0); written < size; written += fillStep {
		for _, f := range open {
			for at := written; at < min(written+fillStep, size); at += mib {
				if _, err := f.WriteAt(chunk, at); err != nil {
					return err
				}
			}
			if err := f.Sync(); err != nil {
				return err
			}
		}
	}
	return nil
}
