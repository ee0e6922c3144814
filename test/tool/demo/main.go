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
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/standalone"
)

func main() {
	binary := flag.String("binary", "", "the holdfast program; built if empty")
	flag.Parse()
	// Whatever ends the demo, an interrupt included, what it mounts and attaches goes with it.
	os.Exit(hostfs.Inside(func() int {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		if err := run(ctx, *binary, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "demo:", err)
			return 1
		}
		return 0
	}))
}

func run(ctx context.Context, binary string, out io.Writer) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("this makes and mounts file systems: run it as root")
	}
	dir, _, err := hostfs.Scratch()
	if err != nil {
		return err
	}
	s := &story{Volumes: standalone.Volumes{Dir: dir, FS: map[string]string{}}, out: out}
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

func (s *story) pool() string { return filepath.Join(s.Dir, "pool") }

// makePool mounts an empty file system where a user would have a disk.
func (s *story) makePool(ctx context.Context) (string, error) {
	disk := filepath.Join(s.Dir, "disk") // whose loop devices are detached in the end
	if err := os.Mkdir(s.pool(), 0o755); err != nil {
		return "", err
	}
	for _, argv := range [][]string{
		{"truncate", "-s", "8G", disk},
		{"mkfs.xfs", "-q", "-m", "reflink=1", disk},
		{"mount", "-o", "loop", disk, s.pool()},
	} {
		if out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, out)
		}
	}
	return s.pool(), nil
}
