package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// runner runs lanes, from the root of the repository.
type runner struct {
	root      string
	dir       string // has the test binaries, and all that each package printed
	test2json string

	mu  sync.Mutex // of out
	out io.Writer
}

func newRunner(ctx context.Context, out io.Writer) (*runner, error) {
	file, err := goOutput(ctx, "", "env", "GOMOD")
	if err != nil {
		return nil, err
	}
	tool, err := goOutput(ctx, "", "tool", "-n", "test2json")
	if err != nil {
		return nil, err
	}
	root := filepath.Dir(file)
	return &runner{root: root, dir: filepath.Join(root, "bin/lanes"), test2json: tool, out: out}, nil
}

// goOutput returns what a command of go prints, without the end of the last line.
func goOutput(ctx context.Context, dir string, args ...string) (string, error) {
	var errs bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stderr = dir, &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, errs.Bytes())
	}
	return strings.TrimSuffix(string(out), "\n"), nil
}

func (r *runner) printf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.out, format, args...)
}

// outcome is what a lane has shown.
type outcome struct {
	lane            string
	took            time.Duration
	passed, skipped int
	failed          []string
	flakes          []flake
	kept            *results // nil for a lane of the gate, which runs whole each time
	commit          string
}

// flake is a test that failed and, alone, passed on the same tree.
type flake struct{ test, because string }

// lane runs a lane to its end or to its limit; resume leaves out what has passed on what this tree has of it.
func (r *runner) lane(ctx context.Context, l lane, resume bool) (o outcome) {
	r.printf("\n== lane %s: %s\n", l.name, l.about)
	begun := time.Now()
	o.lane = l.name
	limited, cancel := context.WithTimeout(ctx, l.limit)
	defer cancel()
	if err := r.try(limited, l, resume, &o); err != nil {
		r.printf("FAIL %s: %v\n", l.name, err)
		o.failed = append(o.failed, l.name+": "+firstLine(err.Error()))
	}
	o.took = time.Since(begun).Round(time.Second)
	r.printf("== lane %s took %s\n", l.name, o.took)
	return o
}

// try returns what keeps a lane from its end. What a test or a check finds is in the outcome.
func (r *runner) try(ctx context.Context, l lane, resume bool, o *outcome) error {
	checks, packages, err := r.plan(ctx, l, resume, o)
	if err != nil {
		return err
	}
	if len(checks)+len(packages) == 0 {
		r.printf("nothing has changed since it passed\n")
		return nil
	}
	end, err := r.furnish(ctx, l)
	defer end()
	if err != nil {
		return err
	}
	for _, c := range checks {
		if err := r.check(ctx, c, o); err != nil {
			return err
		}
	}
	err = r.test(ctx, l, packages, o)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("it did not end within %s", l.limit)
	case ctx.Err() != nil:
		return errors.New("it was interrupted")
	}
	return err
}

// furnish makes what the tests of a lane need, and end removes it.
func (r *runner) furnish(ctx context.Context, l lane) (end func(), err error) {
	end = func() {}
	if len(l.debian) > 0 {
		if err := r.target(ctx, "deps", "PACKAGES="+strings.Join(l.debian, " ")); err != nil {
			return end, err
		}
	}
	if l.cluster != "" {
		if end, err = r.claim(ctx, l.cluster); err != nil {
			return end, err
		}
	}
	for _, target := range l.setup {
		if err := r.target(ctx, target); err != nil {
			return end, err
		}
	}
	return end, nil
}

// check runs a target that passes or fails itself.
func (r *runner) check(ctx context.Context, c checked, o *outcome) error {
	begun := time.Now()
	err := r.target(ctx, c.name)
	if err == nil {
		o.passed++
	} else {
		r.printf("FAIL %v\n", err)
		o.failed = append(o.failed, "make "+c.name) // all checks are targets of the Makefile
	}
	return o.keep(c.name, c.hash, stateOf(err == nil), time.Since(begun))
}

// target runs what make TARGET runs.
func (r *runner) target(ctx context.Context, name string, env ...string) error {
	cmd := r.command(ctx, filepath.Join(r.root, "test/run/run"), name)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = r.out, r.out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("test/run/run %s: %w", name, err)
	}
	return nil
}

// command ends with its children when the context does.
func (r *runner) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = r.root
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return endGroup(cmd.Process.Pid) }
	cmd.WaitDelay = 10 * time.Second // a daemon that it started may hold its output
	return cmd
}

// endGroup ends a process and its children, after they have had time to remove what they made.
func endGroup(leader int) error {
	err := syscall.Kill(-leader, syscall.SIGTERM)
	late := time.After(20 * time.Second)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for err == nil {
		select {
		case <-tick.C:
			err = syscall.Kill(-leader, 0)
		case <-late:
			return syscall.Kill(-leader, syscall.SIGKILL)
		}
	}
	return nil // there is none any more
}

// claim removes what a killed run has left of a cluster, and has it removed when this process ends, however that comes.
func (r *runner) claim(ctx context.Context, cluster string) (remove func(), err error) {
	remove = func() {
		if err := r.inCluster(context.WithoutCancel(ctx), cluster, "down"); err != nil {
			r.printf("%v\n", err)
		}
	}
	if err := r.target(ctx, "cluster-program"); err != nil {
		return func() {}, err
	}
	if err := r.inCluster(ctx, cluster, "down"); err != nil {
		return remove, err
	}
	guard := exec.CommandContext(context.WithoutCancel(ctx), r.clusterProgram(), "-name", cluster, "down-after", strconv.Itoa(os.Getpid()))
	guard.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return remove, guard.Start()
}

func (r *runner) clusterProgram() string { return filepath.Join(r.root, "bin/cluster") }

func (r *runner) inCluster(ctx context.Context, cluster string, args ...string) error {
	cmd := r.command(ctx, r.clusterProgram(), append([]string{"-name", cluster}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cluster -name %s %s: %w\n%s", cluster, strings.Join(args, " "), err, out)
	}
	return nil
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}
