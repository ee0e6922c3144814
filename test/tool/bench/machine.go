package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-storage/holdfast/test/rig/uml"
)

// The second kernel's memory and disk. One that says nothing for long may hang; another is booted then.
const (
	machineMiB     = 2000
	machineDisk    = 16 * gib
	longestSilence = 4 * time.Minute
	mostMachines   = 3
)

// onSecondKernel has a machine measure that has what this kernel lacks. What it prints goes below the tables.
func (b *bench) onSecondKernel(ctx context.Context) (err error) {
	if missing := uml.Missing(); missing != "" {
		return fmt.Errorf("this kernel cannot mount NFS, and there is no other: %s", missing)
	}
	work, err := os.MkdirTemp("", "holdfast-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(work, "bench"), "github.com/holdfast-storage/holdfast/test/tool/bench")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", build, err, out)
	}
	argv := []string{"/run/work/bench", "-only", onlyNFS}
	if b.scale == short {
		argv = append(argv, "-quick")
	}
	for range mostMachines {
		b.sayf("%s: this kernel cannot mount it; a second one is booted", onlyNFS)
		if err = b.onMachine(ctx, work, argv); !errors.Is(err, uml.ErrSilent) {
			return err
		}
	}
	return err
}

func (b *bench) onMachine(ctx context.Context, work string, argv []string) error {
	said := sorter{progress: func(line string) { b.sayf("on the second kernel: %s", line) }}
	machine := uml.Machine{MemoryMiB: machineMiB, DiskBytes: machineDisk, Work: work, Silence: longestSilence}
	status, err := uml.Run(ctx, machine, argv, nil, &said)
	if err != nil {
		return fmt.Errorf("measuring on a second kernel: %w", err)
	}
	if status != 0 {
		return fmt.Errorf("measuring on a second kernel ended with status %d; its last words are above", status)
	}
	b.report.elsewhere = "\n" + said.tables.String()
	return nil
}

// sorter parts what a bench is doing, as it comes, from its tables.
type sorter struct {
	progress func(line string)
	begun    []byte // a line whose end has not come
	tables   strings.Builder
}

func (s *sorter) Write(p []byte) (int, error) {
	s.begun = append(s.begun, p...)
	for {
		line, rest, whole := bytes.Cut(s.begun, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		s.begun = rest
		if progress, is := strings.CutPrefix(string(line), "bench: "); is {
			s.progress(strings.TrimSpace(progress))
		} else {
			s.tables.WriteString(string(line) + "\n")
		}
	}
}
