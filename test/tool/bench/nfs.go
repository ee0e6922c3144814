package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
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
	"github.com/holdfast-storage/holdfast/test/rig/measure"
	"github.com/holdfast-storage/holdfast/test/rig/uml"
)

// onlyNFS is what measures volumes over NFS and nothing else.
const onlyNFS = "nfs"

const (
	nfsPort  = 20491
	nfsPool  = 4 * gib
	nfsFile  = 512 * mib // at most
	nfsStart = time.Minute
)

// hasNFS says whether this kernel can mount NFS; it refuses to mount nothing.
func hasNFS() bool { return !errors.Is(unix.Mount("", os.TempDir(), "nfs4", 0, ""), unix.ENODEV) }

// overNFS runs fio on a file of a volume in its server's own directory, on one over NFS, and on one that the server of the
// kernel exports, in turns.
func (b *runner) overNFS(ctx context.Context) error {
	if !hasNFS() {
		return b.onSecondKernel(ctx)
	}
	return b.inPlace(ctx, "xfs", nfsPool, func(at place) error {
		return serving(ctx, at, func(own, mounted string) error {
			target := filepath.Join(at.disk, "by-kernel")
			return byKernel(ctx, at.scratch, own, target, func() error {
				files, size := []string{filepath.Join(own, "own"), filepath.Join(mounted, "over-nfs"), filepath.Join(target, "by-kernel")}, min(b.file, nfsFile)
				if err := fill(size, files...); err != nil {
					return err
				}
				return b.fio(ctx, onlyNFS, size, files, func(load string, speeds [][]float64) {
					own, nfs, kernel := speeds[0], speeds[1], speeds[2]
					b.report.nfs.add(load, speed(own), speed(nfs), speed(kernel), fmt.Sprintf("%.2f", measure.Ratio(kernel, own)), bold(measure.Ratio(nfs, own)))
				})
			})
		})
	}, "pool", "ids", "target", "by-kernel")
}

// serving serves a volume and mounts it over NFS, and passes its paths on the server and on the client.
func serving(ctx context.Context, at place, use func(own, mounted string) error) (err error) {
	log := slog.New(slog.DiscardHandler)
	server, err := ganesha.New(ganesha.Config{
		RunDir: filepath.Join(at.run, "run"), RecoveryDir: filepath.Join(at.disk, "recovery"), Name: "nfs.bench", Port: nfsPort,
		Grace: 30 * time.Second, Lease: 30 * time.Second, Log: log,
	})
	if err != nil {
		return err
	}
	pool := local.PoolConfig{Name: "bench", Engine: "image", Path: filepath.Join(at.disk, "pool")}
	storage, err := local.Open(ctx, []local.PoolConfig{pool}, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, storage.Close(context.WithoutCancel(ctx))) }()
	exports, target := filepath.Join(at.scratch, "exports"), filepath.Join(at.disk, "target")
	volumes, err := export.Open(ctx, export.Config{
		Storage: storage, ExportsDir: exports, StateDir: filepath.Join(at.disk, "ids"), Exporter: server, Images: true, Log: log,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, volumes.Close(context.WithoutCancel(ctx))) }()
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- server.Run(running) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended)
	}()
	v, err := volumes.Create(ctx, backend.VolumeSpec{Name: "volume", Size: backend.Size{Required: nfsPool / 2}})
	if err != nil {
		return err
	}
	mounting, cancel := context.WithTimeout(ctx, nfsStart)
	defer cancel()
	const address = "127.0.0.1"
	mount := nodeops.NFS{Server: address, Address: address, Port: nfsPort, Path: v.Access.NFS.Path}
	if err := nodeops.MountNFS(mounting, mount, target); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, nodeops.Unmount(context.WithoutCancel(ctx), target)) }()
	return use(filepath.Join(exports, string(v.ID)), target)
}

// The second kernel's memory and disk. One that says nothing for long may hang; another is booted then.
const (
	machineMiB     = 2000
	machineDisk    = 16 * gib
	longestSilence = 4 * time.Minute
	mostMachines   = 3
)

// onSecondKernel has a machine measure that has what this kernel lacks. What it prints goes below the tables.
func (b *runner) onSecondKernel(ctx context.Context) (err error) {
	if missing := uml.Missing(); missing != "" {
		return fmt.Errorf("this kernel cannot mount NFS, and there is no other: %s", missing)
	}
	work, err := os.MkdirTemp("", "holdfast-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	if _, err := shell(ctx, `go build -o "$1/bench" github.com/holdfast-storage/holdfast/test/tool/bench`, work); err != nil {
		return err
	}
	argv := []string{"/run/work/bench", "-only", onlyNFS}
	if b.scale == short {
		argv = append(argv, "-quick")
	}
	for range mostMachines {
		b.sayf("%s: this kernel cannot mount it; a second one is booted", onlyNFS)
		if err = b.onMachine(ctx, work, argv); !errors.Is(err, uml.ErrSilent) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("measuring on a second kernel: %w", err)
	}
	return nil
}

func (b *runner) onMachine(ctx context.Context, work string, argv []string) error {
	machine := uml.Machine{MemoryMiB: machineMiB, DiskBytes: machineDisk, Work: work, Silence: longestSilence}
	said, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		status, err := uml.Run(ctx, machine, argv, nil, out)
		if err == nil && status != 0 {
			err = fmt.Errorf("it ended with status %d; its last words are above", status)
		}
		ended <- errors.Join(err, out.Close())
	}()
	b.elsewhere = "\n"
	for lines := bufio.NewScanner(said); lines.Scan(); {
		if progress, is := strings.CutPrefix(lines.Text(), "bench: "); is {
			b.sayf("on the second kernel: %s", strings.TrimSpace(progress))
		} else {
			b.elsewhere += lines.Text() + "\n"
		}
	}
	return <-ended
}
