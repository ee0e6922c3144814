package local

import (
	"os"
	"testing"

	"github.com/holdfast-storage/holdfast/crashpoint"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/crash"
)

// killedPool makes the test below act as the process that is killed: it is the directory of its pool.
const killedPool = "HOLDFAST_TEST_POOL"

func TestPool_WhoseOpeningIsKilledAtAnyStepIsTheSameForTheNext(t *testing.T) {
	if path := os.Getenv(killedPool); path != "" {
		open(t, PoolConfig{Name: "pool", Engine: "image", Path: path, Reserved: "0"})
		return
	}
	binary := crash.Binary(t)
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
	crash.At(t, binary, "TestPool_WhoseOpeningIsKilledAtAnyStepIsTheSameForTheNext", step, killedPool+"="+c.Path)
	left := headOf(t, c.Path)
	b := served(t, c)
	if now := headOf(t, c.Path); now.UUID != left.UUID || now.Generation != left.Generation+1 {
		t.Errorf("the pool is %+v after %+v", now, left)
	}
	made(t, b, block("b"))
	return b
}
