package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-storage/holdfast/test/rig/standalone"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

// scale says how much is measured.
type scale struct {
	rounds  int           // of each fio workload, raw pool and volume in turns
	runtime time.Duration // of one fio run
	file    int64         // that fio reads and writes
	pool    int64
	calls   int   // how often each call is timed
	copies  int   // how often a snapshot or clone of each size is timed
	large   int64 // size of the large volume
	written int64 // bytes in it
}

var (
	full  = scale{rounds: 5, runtime: 4 * time.Second, file: 2 * gib, pool: 16 * gib, calls: 100, copies: 20, large: 64 * gib, written: gib}
	short = scale{rounds: 1, runtime: time.Second, file: 32 * mib, pool: 2 * gib, calls: 2, copies: 2, large: 4 * gib, written: 64 * mib}
)

// target is an engine over a file system.
type target struct{ engine, fs string }

func (t target) String() string { return t.engine + "/" + t.fs }

var targets = []target{{"image", "xfs"}, {"image", "ext4"}, {"image", "btrfs"}, {"directory", "btrfs"}}

type runner struct {
	scale
	binary    string
	scratch   string
	progress  io.Writer
	report    report
	elsewhere string // what another machine printed
}

// all measures every target and volumes over NFS, or what only names, and prints the tables.
func (b *runner) all(ctx context.Context, only string, out io.Writer) error {
	measured := slices.DeleteFunc(slices.Clone(targets), func(t target) bool { return only != "" && only != t.String() })
	if len(measured) == 0 && only != onlyNFS {
		return fmt.Errorf("-only %s: it must be %s or one of %v", only, onlyNFS, targets)
	}
	if only == "" || only == onlyNFS {
		if err := b.overNFS(ctx); err != nil {
			return fmt.Errorf("%s: %w", onlyNFS, err)
		}
	}
	for _, t := range measured {
		if err := b.one(ctx, t); err != nil {
			return fmt.Errorf("%s: %w", t, err)
		}
	}
	text := b.report.String()
	if text != "" {
		versions, err := shell(ctx, `uname -r; fio --version`)
		if err != nil {
			return err
		}
		kernel, fio, _ := strings.Cut(versions, "\n")
		text = fmt.Sprintf("Linux %s, %d CPUs, %s with libaio and direct I/O at queue depth 32, ", kernel, runtime.NumCPU(), fio) +
			fmt.Sprintf("%d rounds of one pass or %s over a file of %d MiB.\n", b.rounds, b.runtime, b.file/mib) + text
	}
	_, err := io.WriteString(out, text+b.elsewhere)
	return err
}

// one starts the driver on a pool and measures.
func (b *runner) one(ctx context.Context, t target) error {
	return b.inPlace(ctx, t.fs, b.pool, func(at place) (err error) {
		pool := filepath.Join(at.disk, "pool")
		process, err := standalone.Start(ctx, standalone.Options{
			Binary: b.binary, Socket: filepath.Join(at.run, "csi.sock"), Private: true,
			Pools: []string{fmt.Sprintf("name=bench,engine=%s,path=%s,overcommit=50,reserved=0", t.engine, pool)},
		})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, process.Stop()) }()
		byHand := &plain{scripts: scripts[t.engine], dir: filepath.Join(at.disk, "plain"), mounts: at.scratch}
		volumes := &driver{standalone.Volumes{Process: process, Dir: at.scratch, FS: map[string]string{}}, t.engine == "image"}
		if err := b.throughput(ctx, t, filepath.Join(at.disk, "raw"), byHand, volumes); err != nil {
			return err
		}
		if err := b.lives(ctx, t, byHand, volumes); err != nil {
			return err
		}
		return b.sizes(ctx, t, volumes)
	}, "pool", "raw", "plain")
}

func (b *runner) sayf(format string, args ...any) {
	fmt.Fprintf(b.progress, "bench: "+format+"\n", args...)
}
