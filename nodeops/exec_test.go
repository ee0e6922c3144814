package nodeops

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestCommand_FailureReportsItsOutput(t *testing.T) {
	t.Setenv("LC_ALL", "de_DE.UTF-8")
	out, err := run(t.Context(), "sh", "-c", "echo $LC_ALL; echo why >&2; exit 3")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 || !strings.Contains(err.Error(), "why") || !strings.HasPrefix(err.Error(), "sh -c") {
		t.Errorf("got %v", err)
	}
	if out != "C\n" {
		t.Errorf("the locale is %q, want C", out)
	}
}

func TestCommand_UsageTextIsOmitted(t *testing.T) {
	_, err := run(t.Context(), "sh", "-c", `printf 'reason\nUsage: a lot\n' >&2; exit 1`)
	if err == nil || !strings.HasSuffix(err.Error(), ": reason") {
		t.Errorf("got %v", err)
	}
	_, err = run(t.Context(), "sh", "-c", `head -c 100000 /dev/zero | tr '\0' x >&2; exit 1`)
	if err == nil || len(err.Error()) > 3000 {
		t.Errorf("%d bytes of error", len(err.Error()))
	}
}

func TestSpace_LackIsRecognized(t *testing.T) {
	if _, err := run(t.Context(), "sh", "-c", "echo mkfs: No space left on device >&2; exit 1"); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("got %v, want ENOSPC", err)
	}
}

func TestCommand_EndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	fifo := t.TempDir() + "/fifo"
	check.OK(t, unix.Mkfifo(fifo, 0o600))
	go func() {
		_, _ = os.ReadFile(fifo) // returns when the command runs
		cancel(nil)
	}()
	if _, err := run(ctx, "sh", "-c", "echo > "+fifo+"; exec tail -f /dev/null"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's end", err)
	}
}

func TestCommand_MissingIsNamed(t *testing.T) {
	if _, err := run(t.Context(), "no-such-command"); !errors.Is(err, exec.ErrNotFound) || !strings.Contains(err.Error(), "this host has no no-such-command") {
		t.Errorf("got %v", err)
	}
}
