package nodeops

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// isFrozen tries to freeze the file system.
func isFrozen(t testing.TB, dir string) bool {
	t.Helper()
	f := check.Got(os.Open(dir))(t)
	defer f.Close()
	switch err := unix.IoctlSetInt(int(f.Fd()), fiFreeze, 0); err {
	case unix.EBUSY:
		return true
	case nil:
		check.OK(t, unix.IoctlSetInt(int(f.Fd()), fiThaw, 0))
		return false
	default:
		t.Fatal(err)
		return false
	}
}

// writeTo writes a file in the background and reports the result.
func writeTo(t testing.TB, dir string) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600) }()
	return done
}

// thawed waits until a write succeeds; the timeout is long enough for any machine.
func thawed(t testing.TB, written <-chan error) {
	t.Helper()
	select {
	case err := <-written:
		check.Report(t, err)
	case <-time.After(time.Minute):
		t.Fatal("the file system was not thawed")
	}
}

func freezeFor(t testing.TB, dir string, limit time.Duration) *Frozen {
	t.Helper()
	return check.Got(Freeze(t.Context(), dir, limit))(t)
}

func TestFreeze_BlocksWritesUntilTheThaw(t *testing.T) {
	eachFS(t, func(t *testing.T, fstype string, size int64) {
		image := newImage(t, fstype, size)
		dir := mountImage(t, image)
		write(t, filepath.Join(dir, "before"), strings.Repeat("x", 1<<20))
		f := freezeFor(t, dir, time.Minute)
		written := writeTo(t, dir)
		check.Fails(t, check.ErrorOf(Freeze(t.Context(), dir, time.Minute)), unix.EBUSY, "frozen already")
		check.Same(t, isFrozen(t, dir), true)
		// Earlier writes are in the image, and it does not change.
		check.Same(t, checksum(t, image), checksum(t, image))
		select {
		case err := <-written:
			t.Errorf("a write got through: %v", err)
		default:
		}
		check.Report(t, f.Thaw())
		thawed(t, written)
		if f.guard.cmd.ProcessState == nil {
			t.Error("the guard is not reaped")
		}
		check.Report(t, f.Thaw())
	})
}

func TestFreeze_ThatHasEndedIsInvalidAndThawsNothingThatAnotherFrozeAgain(t *testing.T) {
	dir := newFS(t, "ext4", 16*mib)
	f := freezeFor(t, dir, 10*time.Millisecond)
	thawed(t, writeTo(t, dir))
	again := freezeFor(t, dir, time.Minute)
	for range 2 {
		check.Fails(t, f.Thaw(), ErrThawed)
	}
	check.Report(t, again.Thaw())
}

func TestFreeze_ByAnotherIsLeftAloneAndItsThawIsNoticed(t *testing.T) {
	dir := newFS(t, "ext4", 16*mib)
	f := freezeFor(t, dir, time.Minute)
	check.Fails(t, check.ErrorOf(Freeze(t.Context(), dir, time.Minute)), unix.EBUSY, "frozen already")
	check.Same(t, isFrozen(t, dir), true) // the second one did not thaw what the first had frozen
	check.OK(t, ThawLeftover(dir))
	check.Fails(t, f.Thaw(), ErrThawed)
}

func TestFreeze_LeftoverIsThawedAndTheRestIsLeftAlone(t *testing.T) {
	dir := newFS(t, "ext4", 16*mib)
	root := check.Got(os.Open(dir))(t)
	defer root.Close()
	check.OK(t, unix.IoctlSetInt(int(root.Fd()), fiFreeze, 0))
	for range 2 {
		check.OK(t, ThawLeftover(dir))
		check.Same(t, isFrozen(t, dir), false)
	}
	check.Fails(t, ThawLeftover(filepath.Join(dir, "missing")), nil)
	check.Report(t, ThawLeftover("/proc")) // what cannot be frozen cannot be left frozen
}

func TestFreeze_ThatIsRefusedFreezesNothing(t *testing.T) {
	dir := newFS(t, "ext4", 16*mib)
	sub := filepath.Join(dir, "dir")
	check.OK(t, os.Mkdir(sub, 0o755))
	check.Fails(t, check.ErrorOf(Freeze(t.Context(), dir, 0)), nil, "positive")
	check.Fails(t, check.ErrorOf(Freeze(t.Context(), "/proc", time.Minute)), unix.EOPNOTSUPP)
	check.Fails(t, check.ErrorOf(Freeze(t.Context(), sub, time.Minute)), nil, "nothing is mounted") // it belongs to another file system
	// Check only, do not freeze: a fault must not block the host.
	check.Fails(t, freezable(open(t, "/")), nil, "root file system")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	check.Fails(t, check.ErrorOf(Freeze(gone, dir, time.Minute)), context.Canceled)
	t.Setenv("PATH", t.TempDir())
	check.Fails(t, check.ErrorOf(Freeze(t.Context(), dir, time.Minute)), nil, "guard")
	check.Same(t, isFrozen(t, dir), false)
}

func TestFreeze_CallerThatEndsDuringItLeavesNothingFrozen(t *testing.T) {
	dir := newFS(t, "ext4", 16*mib)
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		if f, err := Freeze(ctx, dir, time.Minute); err == nil {
			check.Report(t, f.Thaw())
		}
	}
	thawed(t, writeTo(t, dir))
}

const freezeInChild = "HOLDFAST_TEST_FREEZE"

func TestFreeze_KilledFreezerIsThawed(t *testing.T) {
	if dir := os.Getenv(freezeInChild); dir != "" {
		freezeFor(t, dir, time.Hour)
		fmt.Println("frozen")
		select {}
	}
	dir := newFS(t, "ext4", 16*mib)
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$")
	child.Env = append(os.Environ(), freezeInChild+"="+dir)
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out := check.Got(child.StdoutPipe())(t)
	check.OK(t, child.Start())
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "frozen\n" {
		t.Fatalf("the child says %q, %v", line, err)
	}
	written := writeTo(t, dir)
	check.Same(t, isFrozen(t, dir), true)
	check.OK(t, unix.Kill(-child.Process.Pid, unix.SIGKILL)) // with its process group
	_ = child.Wait()
	thawed(t, written)
}
