// Command demo shows one volume's life: it makes a pool, serves it with `holdfast standalone`, and does through a
// real CSI client what an orchestrator does. It needs root, and leaves nothing behind.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/holdfast-storage/holdfast/test/rig/standalone"
)

func main() {
	binary := flag.String("binary", "", "the holdfast program; built if empty")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *binary, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, binary string, out io.Writer) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("this makes and mounts file systems: run it as root")
	}
	dir, err := os.MkdirTemp("", "holdfast-demo-")
	if err != nil {
		return err
	}
	// Whatever ends the demo, an interrupt included, what it made is taken down.
	defer func() { err = errors.Join(err, takeDown(dir)) }()
	s := &story{dir: dir, out: out}
	if err := s.step(ctx, "make a pool: 8 GiB of xfs with reflink", s.makePool); err != nil {
		return err
	}
	if binary == "" {
		if binary, err = standalone.Binary(ctx, dir); err != nil {
			return err
		}
	}
	options := standalone.Options{
		Binary: binary, Socket: filepath.Join(dir, "csi.sock"), Private: true,
		Pools: []string{"name=demo,path=" + s.pool()},
	}
	if err := s.step(ctx, "start holdfast standalone on it", func(ctx context.Context) (detail string, err error) {
		s.Process, err = standalone.Start(ctx, options)
		return "csi over " + options.Socket, err
	}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	return s.run(ctx)
}
