// Package uml runs a program as root on a second kernel, User Mode Linux, which has what the machine's own kernel may
// lack: project quotas of xfs and ext4, to begin with. It boots in seconds as ordinary processes.
//
// The program finds the host's own files, read-only, and fresh disks. Nothing of the machine outlives its caller, also
// when that is killed.
package uml

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// Machine is a second kernel with its memory and disks.
type Machine struct {
	MemoryMiB int
	DiskBytes int64   // of the disk on /tmp, which takes only what is written to it
	Disks     []int64 // bytes of further disks, which are empty: /dev/ubdb and on
	Work      string  // a directory of the host that is seen, writable, as /run/work
	Network   *Network
	Restart   bool // boots it again when the program fails
	// Silence is how long the program may print nothing before the machine is switched off with ErrSilent; 0: for ever.
	Silence time.Duration
}

// Network is a machine's only connection, to the host: the other end of a tap interface, which the caller makes.
type Network struct {
	Tap     string
	Address string // of the machine, with the length of its prefix
}

// ErrSilent is of a machine that may hang, which is a fault of a kernel that is a process. Another may do.
var ErrSilent = errors.New("the second kernel has said nothing")

const kernel = "linux.uml"

// Missing says what of the second kernel is not installed, or "".
func Missing() string {
	for _, name := range []string{kernel, "mkfs.ext4", "cc"} {
		if _, err := exec.LookPath(name); err != nil {
			return name + " is not installed; the Debian packages user-mode-linux, e2fsprogs and gcc with libc6-dev bring it"
		}
	}
	return ""
}

// Run boots a machine, runs argv in it as root, copies what it prints to out as it comes, and returns its exit status.
// It fails when the machine dies before, with what its kernel said, and when ctx ends. A machine that hangs while it boots
// is booted again.
func Run(ctx context.Context, m Machine, argv, env []string, out io.Writer) (status int, err error) {
	for attempt := 1; ; attempt++ {
		status, err = boot(ctx, m, argv, env, out)
		if attempt == bootAttempts || !errors.Is(err, errHung) {
			return status, err
		}
		fmt.Fprintf(os.Stderr, "%v; booting it again, %d of %d times\n", err, attempt, bootAttempts-1)
	}
}

func boot(ctx context.Context, m Machine, argv, env []string, out io.Writer) (status int, err error) {
	scratch, err := os.MkdirTemp("", "holdfast-uml-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(scratch)
	description := map[string]any{"Argv": argv, "Env": env, "Work": m.Work, "Restart": m.Restart}
	if m.Network != nil {
		description["Address"] = m.Network.Address
	}
	job, err := json.Marshal(description)
	if err != nil {
		return 0, err
	}
	runner := filepath.Join(scratch, "runner")
	disks, err := m.disks(scratch)
	if err := errors.Join(err, os.WriteFile(filepath.Join(scratch, "job"), job, 0o600), build(ctx, runner)); err != nil {
		return 0, err
	}
	args := append([]string{
		"keep", scratch, kernel, fmt.Sprintf("mem=%dM", m.MemoryMiB), "rootfstype=hostfs", "root=/dev/root", "rootflags=/", "ro",
		"init=" + runner, "HOLDFAST_UML=" + scratch, "uml_dir=" + scratch, "con=null", "con0=null,fd:2", "con1=null,fd:1", "quiet",
	}, disks...)
	if m.Network != nil {
		// The host sends several packets in one piece, which are cut off without gro, and a connection stalls.
		args = append(args, "vec0:transport=tap,ifname="+m.Network.Tap+",depth=128,gro=1")
	}
	ctx, hang := context.WithCancelCause(ctx)
	defer hang(nil)
	if m.Silence > 0 {
		silence := time.AfterFunc(m.Silence, func() { hang(fmt.Errorf("%w for %s", ErrSilent, m.Silence)) })
		defer silence.Stop()
		out = io.MultiWriter(out, heard(func() { silence.Reset(m.Silence) }))
	}
	return watch(ctx, hang, scratch, exec.CommandContext(ctx, runner, args...), out)
}

// heard is called with each thing that is written to it.
type heard func()

func (h heard) Write(p []byte) (int, error) {
	h()
	return len(p), nil
}

// build makes a program that needs no library: the machine's first process.
func build(ctx context.Context, runner string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", runner, "github.com/holdfast-storage/holdfast/test/rig/uml/runner")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", cmd, err, out)
	}
	return nil
}

// disks makes the disks and the kernel's arguments for them.
func (m *Machine) disks(dir string) (args []string, err error) {
	for i, size := range append([]int64{m.DiskBytes}, m.Disks...) {
		name := fmt.Sprintf("ubd%c", 'a'+i)
		disk := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(disk, nil, 0o600), os.Truncate(disk, size)); err != nil {
			return nil, err
		}
		args = append(args, name+"="+disk)
	}
	return args, nil
}

// watch runs the keeper of a machine until the machine is off. The keeper ends with its standard input, and with it
// all that it holds: it needs no signal from a caller that is gone.
func watch(ctx context.Context, hang context.CancelCauseFunc, scratch string, keeper *exec.Cmd, out io.Writer) (status int, err error) {
	const lingering = 10 * time.Second
	var said bytes.Buffer
	keeper.Stderr, keeper.WaitDelay = &said, lingering
	keeper.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	held, err := keeper.StdinPipe()
	if err != nil {
		return 0, err
	}
	keeper.Cancel = held.Close
	output, err := keeper.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := keeper.Start(); err != nil {
		return 0, err
	}
	go watchBoot(ctx, hang, scratch, keeper.Process.Pid)
	_, copied := io.Copy(out, output)
	written, missing := os.ReadFile(filepath.Join(scratch, "status"))
	held.Close()
	ended := keeper.Wait()
	switch {
	case ctx.Err() != nil:
		return 0, fmt.Errorf("the second kernel was switched off: %w", context.Cause(ctx))
	case missing != nil:
		return 0, fmt.Errorf("the second kernel ended before the program did; it had printed:\n%s", said.Bytes())
	case copied != nil || ended != nil:
		return 0, fmt.Errorf("keeping the second kernel: %w", errors.Join(copied, ended))
	}
	return strconv.Atoi(string(written))
}
