package nodeops

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

func TestCommand_FailureIsBriefAndOfItsKind(t *testing.T) {
	usage := check.ErrorOf(run(t.Context(), "sh", "-c", `printf 'reason\nUsage: a lot\n' >&2; exit 1`))
	long := check.ErrorOf(run(t.Context(), "sh", "-c", `head -c 100000 /dev/zero | tr '\0' x >&2; exit 1`))
	if !strings.HasSuffix(fmt.Sprint(usage), ": reason") || long == nil || len(long.Error()) > 3000 {
		t.Errorf("got %v, and %d bytes", usage, len(fmt.Sprint(long)))
	}
	check.Fails(t, check.ErrorOf(run(t.Context(), "sh", "-c", "echo mkfs: No space left on device >&2; exit 1")), unix.ENOSPC)
	check.Fails(t, check.ErrorOf(run(t.Context(), "no-such-command")), exec.ErrNotFound, "this host has no no-such-command")
}

func TestCommand_EndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	fifo := t.TempDir() + "/fifo"
	check.OK(t, unix.Mkfifo(fifo, 0o600))
	go func() {
		_, _ = os.ReadFile(fifo) // returns when the command runs
		cancel(nil)
	}()
	check.Fails(t, check.ErrorOf(run(ctx, "sh", "-c", "echo > "+fifo+"; exec tail -f /dev/null")), context.Canceled)
}

func TestLock_FileIsOpenedForWritingOnlyWhereNoOtherLockIsHeld(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	check.OK(t, os.WriteFile(path, nil, 0o600))
	for reading, want := range map[int][]int{
		os.O_RDONLY: {os.O_RDONLY},
		unix.O_PATH: {os.O_RDONLY, os.O_RDWR}, // flock fails with EBADF for it, as on NFS
	} {
		var asked []int
		open := func(flag int) (*os.File, error) {
			asked = append(asked, flag)
			if flag == os.O_RDONLY {
				flag = reading
			}
			return os.OpenFile(path, flag, 0)
		}
		f := check.Got(Lock(open, unix.LOCK_EX|unix.LOCK_NB))(t)
		if !slices.Equal(asked, want) {
			t.Errorf("it was opened as %v, want %v", asked, want)
		}
		check.Fails(t, check.ErrorOf(Lock(open, unix.LOCK_EX|unix.LOCK_NB)), unix.EWOULDBLOCK) // a second lock beside the first
		f.Close()
	}
}

func TestLock_EndsWhenItIsClosedThoughAStartingCommandHasACopyOfTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	check.OK(t, os.WriteFile(path, nil, 0o600))
	open := func(flag int) (*os.File, error) { return os.OpenFile(path, flag, 0) }
	first := check.Got(Lock(open, unix.LOCK_EX))(t)
	inherited := check.Got(unix.Dup(int(first.Fd())))(t)
	defer unix.Close(inherited)
	check.OK(t, first.Close())
	second, err := Lock(open, unix.LOCK_EX|unix.LOCK_NB)
	check.OK(t, err) // the next lock
	second.Close()
}
