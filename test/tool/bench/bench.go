package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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

type bench struct {
	scale
	binary        string
	scratch       string
	out, progress io.Writer
	report        report
}

// all measures every target and volumes over NFS, or what only names, and prints the tables.
func (b *bench) all(ctx context.Context, only string) error {
	known := only == "" || only == onlyNFS
	if known {
		if err := b.overNFS(ctx); err != nil {
			return fmt.Errorf("%s: %w", onlyNFS, err)
		}
	}
	for _, t := range targets {
		if only != "" && only != t.String() {
			continue
		}
		known = true
		if err := b.one(ctx, t); err != nil {
			return fmt.Errorf("%s: %w", t, err)
		}
	}
	if !known {
		return fmt.Errorf("-only %s: it must be %s or one of %v", only, onlyNFS, targets)
	}
	if only == onlyNFS {
		if b.report.elsewhere != "" {
			_, err := io.WriteString(b.out, b.report.elsewhere)
			return err
		}
		b.file = min(b.file, nfsFile)
	}
	header, err := machine(ctx, b.scale)
	if err != nil {
		return err
	}
	if only != onlyNFS {
		header += calls(b.scale)
	}
	return b.report.print(b.out, header)
}

// one makes a pool, starts the driver on it, measures, and removes all of it whatever happened.
func (b *bench) one(ctx context.Context, t target) (err error) {
	dir, err := newScratch(b.scratch)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.remove(context.WithoutCancel(ctx))) }()
	b.sayf("%s: making a pool of %d GiB", t, b.pool/gib)
	mount, err := dir.fileSystem(ctx, t.fs, b.pool)
	if err != nil {
		return err
	}
	for _, d := range []string{"pool", "raw", "plain"} {
		if err := os.Mkdir(filepath.Join(mount, d), 0o755); err != nil {
			return err
		}
	}
	run, err := os.MkdirTemp("", "holdfast-") // a socket's path must be short
	if err != nil {
		return err
	}
	defer os.RemoveAll(run)
	process, err := standalone.Start(ctx, standalone.Options{
		Binary: b.binary, Socket: filepath.Join(run, "csi.sock"), Private: true,
		Pools: []string{fmt.Sprintf("name=bench,engine=%s,path=%s,overcommit=50,reserved=0", t.engine, filepath.Join(mount, "pool"))},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, process.Stop()) }()
	return b.measure(ctx, t, newPlain(t, filepath.Join(mount, "plain"), dir.path), newDriver(process, t, dir.path), filepath.Join(mount, "raw"))
}

func (b *bench) measure(ctx context.Context, t target, scripts, volumes subject, raw string) error {
	if err := b.throughput(ctx, t, raw, scripts, volumes); err != nil {
		return err
	}
	if err := b.latency(ctx, t, scripts, volumes); err != nil {
		return err
	}
	return b.sizes(ctx, t, volumes)
}

func (b *bench) sayf(format string, args ...any) {
	fmt.Fprintf(b.progress, "bench: "+format+"\n", args...)
}
