// Package crash runs a test once more, in a process that is killed at a step of what it tests.
package crash

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/holdfast-storage/holdfast/crashpoint"
)

// Self is the program of tests that are built with the tag crashpoints.
const Self = "/proc/self/exe"

// Binary compiles the tests of the package that runs with crash points.
func Binary(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("compiles this package with crash points")
	}
	binary := filepath.Join(t.TempDir(), "tests")
	if out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-tags", "crashpoints", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return binary
}

// At runs a test in a process of its own, and fails unless that is killed at the step. By what it has in its environment the test
// recognizes that process.
func At(t testing.TB, binary, test string, step crashpoint.Step, env ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, "-test.run", "^"+test+"$")
	cmd.Env = slices.Concat(os.Environ(), env, []string{"HOLDFAST_CRASH_AT=" + string(step)})
	said, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil || cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("it was not killed at %s but ended with %v; is the test built with the tag crashpoints? %s", step, err, said)
	}
}
