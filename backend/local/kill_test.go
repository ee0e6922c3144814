package local

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/holdfast-storage/holdfast/crashpoint"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// killedPool makes the test below act as the process that is killed: it is the directory of its pool.
const killedPool = "HOLDFAST_TEST_POOL"

func TestPool_WhoseOpeningIsKilledAtAnyStepIsTheSameForTheNext(t *testing.T) {
	if path := os.Getenv(killedPool); path != "" {
		open(t, PoolConfig{Name: "pool", Engine: "image", Path: path, Reserved: "0"})
		return
	}
	if testing.Short() {
		t.Skip("compiles this package with crash points")
	}
	binary := filepath.Join(t.TempDir(), "local.test")
	if out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-tags", "crashpoints", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, step := range crashpoint.PoolSteps {
		t.Run(string(step)+" of a new one", func(t *testing.T) { killedOpening(t, binary, emptyPool(t), step) })
	}
	t.Run(string(crashpoint.PoolCounted)+" of one with a volume", func(t *testing.T) {
		c := emptyPool(t)
		begun(t, c, 2)
		check.Got(killedOpening(t, binary, c, crashpoint.PoolCounted).Get(t.Context(), "a"))(t)
	})
}

func killedOpening(t *testing.T, binary string, c PoolConfig, step crashpoint.Step) *Backend {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, "-test.run", "^TestPool_WhoseOpeningIsKilledAtAnyStepIsTheSameForTheNext$")
	cmd.Env = append(os.Environ(), killedPool+"="+c.Path, "HOLDFAST_CRASH_AT="+string(step))
	out, err := cmd.CombinedOutput()
	exit, _ := errors.AsType[*exec.ExitError](err)
	if exit == nil || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("it did not die at %s: %v: %s", step, err, out)
	}
	left := headOf(t, c.Path)
	b := served(t, c)
	if now := headOf(t, c.Path); now.UUID != left.UUID || now.Generation != left.Generation+1 {
		t.Errorf("the pool is %+v after %+v", now, left)
	}
	made(t, b, block("b"))
	return b
}
