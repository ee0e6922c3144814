package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfast-storage/holdfast/test/rig/measure"
)

// throughput runs fio on a file of the raw pool, of a volume that shell commands made, and of a volume, in turns.
func (b *runner) throughput(ctx context.Context, t target, raw string, scripts, volumes subject) error {
	const name = "fio"
	files := []string{filepath.Join(raw, "file")}
	for _, s := range []subject{scripts, volumes} {
		if err := begin(ctx, s, name, b.file+gib, "xfs"); err != nil {
			return err
		}
		files = append(files, filepath.Join(s.path(name), "file"))
	}
	if err := fill(b.file, files...); err != nil {
		return err
	}
	err := b.fio(ctx, t.String(), b.file, files, func(load string, speeds [][]float64) {
		raw, plain, volume := speeds[0], speeds[1], speeds[2]
		b.report.speeds.add(fmt.Sprintf("%s, %s", t, load), speed(raw), speed(plain), speed(volume),
			fmt.Sprintf("%.2f", measure.Ratio(plain, raw)), bold(measure.Ratio(volume, raw)))
	})
	if err != nil {
		return err
	}
	for _, s := range []subject{scripts, volumes} {
		if err := end(ctx, s, name); err != nil {
			return err
		}
	}
	return os.Remove(files[0])
}

// fio puts every load on files, from empty caches, and calls found with the speeds of each file.
func (b *runner) fio(ctx context.Context, of string, size int64, files []string, found func(load string, speeds [][]float64)) error {
	for _, load := range measure.Loads {
		b.sayf("%s: fio %s", of, load.Name)
		speeds, err := measure.InTurns(b.rounds, len(files), func(i, _ int) (float64, error) {
			out, err := shell(ctx, `sync && echo 3 >/proc/sys/vm/drop_caches && "$@"`, load.Command(files[i], size, b.runtime)...)
			if err != nil {
				return 0, err
			}
			return measure.Speed(out)
		})
		if err != nil {
			return err
		}
		found(load.Name, speeds)
	}
	return nil
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
	chunk := bytes.Repeat([]byte("holdfast"), int(min(fillStep, size))/8)
	for at := int64(0); at < size; at += fillStep {
		for _, f := range open {
			_, err := f.Write(chunk[:min(fillStep, size-at)])
			if err := errors.Join(err, f.Sync()); err != nil {
				return err
			}
		}
	}
	return nil
}
