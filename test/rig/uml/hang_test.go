package uml

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

// spinning is a process in a PID namespace of its own whose child spins.
func spinning(t *testing.T) (pid int) {
	t.Helper()
	hostfs.RequireRoot(t)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "while :; do :; done & wait")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	check.OK(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

func TestHang_MachineThatSpinsBeforeItBootsIsSwitchedOff(t *testing.T) {
	if testing.Short() {
		t.Skip("spins for as long as a machine may; run without -short")
	}
	ctx, hang := context.WithCancelCause(t.Context())
	watchBoot(ctx, hang, t.TempDir(), spinning(t))
	if err := context.Cause(ctx); !errors.Is(err, errHung) {
		t.Errorf("it ended for %v", err)
	}
}

func TestHang_MachineThatHasBootedMaySpin(t *testing.T) {
	scratch := t.TempDir()
	check.OK(t, os.WriteFile(filepath.Join(scratch, "booted"), nil, 0o600))
	ctx, hang := context.WithCancelCause(t.Context())
	watchBoot(ctx, hang, scratch, spinning(t))
	if ctx.Err() != nil {
		t.Errorf("it was switched off for %v", context.Cause(ctx))
	}
}
