package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/export"
	"github.com/holdfast-storage/holdfast/backend/local"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/nodeops/ganesha"
)

// onlyNFS is what measures volumes over NFS and nothing else.
const onlyNFS = "nfs"

const (
	nfsPort  = 20491
	nfsPool  = 4 * gib
	nfsFile  = 512 * mib // at most
	nfsStart = time.Minute
)

// hasNFS says whether this kernel can mount NFS.
func hasNFS() (bool, error) {
	dir, err := os.MkdirTemp("", "holdfast-")
	if err != nil {
		return false, err
	}
	defer os.Remove(dir)
	return !errors.Is(unix.Mount("", dir, "nfs4", 0, ""), unix.ENODEV), nil
}

// overNFS runs fio on a file of a volume in its server's own directory and on another over NFS, in turns.
func (b *bench) overNFS(ctx context.Context) (err error) {
	has, err := hasNFS()
	if err != nil {
		return err
	}
	if !has {
		return b.onSecondKernel(ctx)
	}
	b.sayf("%s: making a server", onlyNFS)
	dir, err := newScratch(b.scratch)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.remove(context.WithoutCancel(ctx))) }()
	small := *b
	small.file = min(b.file, nfsFile)
	return serving(ctx, dir, func(own, mounted string) error {
		files := []string{filepath.Join(own, "own"), filepath.Join(mounted, "over-nfs")}
		for _, file := range files {
			if err := fill(small.file, file); err != nil {
				return err
			}
		}
		for _, w := range workloads {
			b.sayf("%s: fio %s", onlyNFS, w.name)
			speeds, err := small.inTurns(ctx, w, files)
			if err != nil {
				return err
			}
			b.report.nfs = append(b.report.nfs, nfsRow{w.name, speeds[0], speeds[1]})
		}
		return nil
	})
}

// serving makes a server with a volume, mounts that over NFS, and returns its paths on the server and on the client.
func serving(ctx context.Context, dir scratch, measure func(own, mounted string) error) (err error) {
	disk, err := dir.fileSystem(ctx, "xfs", nfsPool)
	if err != nil {
		return err
	}
	run, err := os.MkdirTemp("", "holdfast-") // a socket's path must be short
	if err != nil {
		return err
	}
	defer os.RemoveAll(run)
	pool, ids, target := filepath.Join(disk, "pool"), filepath.Join(disk, "ids"), filepath.Join(dir.path, "target")
	for _, d := range []string{pool, ids, target} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return err
		}
	}
	log := slog.New(slog.DiscardHandler)
	server, err := ganesha.New(ganesha.Config{
		RunDir: filepath.Join(run, "run"), RecoveryDir: filepath.Join(disk, "recovery"), Name: "nfs.bench", Port: nfsPort,
		Grace: 30 * time.Second, Lease: 30 * time.Second, Log: log,
	})
	if err != nil {
		return err
	}
	storage, err := local.Open(ctx, []local.PoolConfig{{Name: "bench", Engine: "image", Path: pool}}, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, storage.Close(context.WithoutCancel(ctx))) }()
	volumes, err := export.Open(ctx, export.Config{
		Backend: storage, ExportsDir: filepath.Join(dir.path, "exports"), StateDir: ids, Exporter: server, Images: true, Log: log,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, volumes.Close(context.WithoutCancel(ctx))) }()
	stop := running(ctx, server)
	defer func() { err = errors.Join(err, stop()) }()
	v, err := volumes.Create(ctx, backend.VolumeSpec{Name: "volume", Size: backend.Size{Required: nfsPool / 2}})
	if err != nil {
		return err
	}
	mounting, cancel := context.WithTimeout(ctx, nfsStart)
	defer cancel()
	const address = "127.0.0.1"
	if err := nodeops.MountNFS(mounting, nodeops.NFS{Server: address, Address: address, Port: nfsPort, Path: v.Access.NFS.Path}, target); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, nodeops.Unmount(context.WithoutCancel(ctx), target)) }()
	return measure(filepath.Join(dir.path, "exports", string(v.ID)), target)
}

// running starts a server and returns what ends it.
func running(ctx context.Context, server *ganesha.Server) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}

// nfsRow holds bytes per second, one of each round.
type nfsRow struct {
	workload string
	own, nfs []float64
}

// nfsTable is empty where nothing was measured, perhaps because another machine did it.
func (r *report) nfsTable() string {
	if len(r.nfs) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\nClient and server on one kernel, over a file of at most 512 MiB.\n\n| over NFS | server's own directory | NFS | **NFS / own** |\n| --- | --- | --- | --- |\n")
	for _, row := range r.nfs {
		fmt.Fprintf(&b, "| %s | %s | %s | **%.2f** |\n", row.workload, speed(median(row.own)), speed(median(row.nfs)), ratio(row.nfs, row.own))
	}
	return b.String()
}
