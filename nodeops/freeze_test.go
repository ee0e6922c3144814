package nodeops

import (
	"bufio"
	"context"
	"errors"
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
	requireRoot(t)
	for fstype, size := range fileSystems {
		t.Run(fstype, func(t *testing.T) {
			image := newImage(t, fstype, size)
			dir := mountImage(t, image)
			write(t, filepath.Join(dir, "before"), strings.Repeat("x", 1<<20))
			f := freezeFor(t, dir, time.Minute)
			written := writeTo(t, dir)
			if !isFrozen(t, dir) {
				t.Error("it is not frozen")
			}
			// Earlier writes are in the image, and it does not change.
			first := checksum(t, image)
			if again := checksum(t, image); first != again {
				t.Error("the image changes while it is frozen")
			}
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
			if err := f.Thaw(); err != nil {
				t.Errorf("the second Thaw says %v, the first said nothing", err)
			}
		})
	}
}

func TestFreeze_EndsAfterTheLimitAndTheCopyIsInvalid(t *testing.T) {
	dir := newFS(t, "ext4", 16*mib)
	f := freezeFor(t, dir, 10*time.Millisecond)
	thawed(t, writeTo(t, dir))
	for range 2 {
		if err := f.Thaw(); !errors.Is(err, ErrThawed) {
			t.Errorf("got %v, want ErrThawed", err)
		}
	}
}

func TestFreeze_ThawByAnotherIsNoticed(t *testing.T) {
	dir := newFS(t, "ext4", 16*mib)
	f := freezeFor(t, dir, time.Minute)
	check.OK(t, ThawLeftover(dir))
	if err := f.Thaw(); !errors.Is(err, ErrThawed) {
		t.Errorf("got %v, want ErrThawed", err)
	}
}

func TestFreeze_ThatHasEndedThawsNothingThatAnotherFrozeAgain(t *testing.T) {
	dir := newFS(t, "ext4", 16*mib)
	f := freezeFor(t, dir, 10*time.Millisecond)
	thawed(t, writeTo(t, dir))
	again := freezeFor(t, dir, time.Minute)
	if err := f.Thaw(); !errors.Is(err, ErrThawed) {
		t.Errorf("got %v, want ErrThawed", err)
	}
	check.Report(t, again.Thaw())
}

func TestFreeze_ByAnotherIsLeftAlone(t *testing.T) {
	dir := newFS(t, "ext4", 16*mib)
	f := freezeFor(t, dir, time.Minute)
	if _, err := Freeze(t.Context(), dir, time.Minute); !errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), "frozen already") {
		t.Errorf("got %v, want EBUSY that says it is frozen already", err)
	}
	if !isFrozen(t, dir) {
		t.Error("the second one thawed what the first had frozen")
	}
	check.Report(t, f.Thaw())
}

func TestFreeze_LeftoverIsThawedAndTheRestIsLeftAlone(t *testing.T) {
	dir := newFS(t, "ext4", 16*mib)
	root := check.Got(os.Open(dir))(t)
	defer root.Close()
	check.OK(t, unix.IoctlSetInt(int(root.Fd()), fiFreeze, 0))
	for range 2 {
		check.OK(t, ThawLeftover(dir))
		if isFrozen(t, dir) {
			t.Error("it is still frozen")
		}
	}
	if err := ThawLeftover(filepath.Join(dir, "missing")); err == nil {
		t.Error("a missing path is no error")
	}
	if err := ThawLeftover("/proc"); err != nil {
		t.Errorf("what cannot be frozen cannot be left frozen: %v", err)
	}
}

func TestFreeze_NeedsALimitACapableFileSystemAndACaller(t *testing.T) {
	dir := newFS(t, "ext4", 16*mib)
	if _, err := Freeze(t.Context(), dir, 0); err == nil || !strings.Contains(err.Error(), "positive") {
		t.Errorf("without a limit: %v", err)
	}
	if _, err := Freeze(t.Context(), "/proc", time.Minute); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("a file system without freeze: %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Freeze(gone, dir, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller who is gone: %v", err)
	}
	if isFrozen(t, dir) {
		t.Error("it is frozen")
	}
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

func TestFreeze_NeedsAGuard(t *testing.T) {
	dir := newFS(t, "ext4", 16*mib)
	t.Setenv("PATH", t.TempDir())
	if _, err := Freeze(t.Context(), dir, time.Minute); err == nil || !strings.Contains(err.Error(), "guard") {
		t.Errorf("got %v, want an error about the guard", err)
	}
	if isFrozen(t, dir) {
		t.Error("it is frozen")
	}
}

func TestFreeze_HostsOwnFileSystemIsNever(t *testing.T) {
	sub := filepath.Join(newFS(t, "ext4", 16*mib), "dir")
	check.OK(t, os.Mkdir(sub, 0o755))
	if _, err := Freeze(t.Context(), sub, time.Minute); err == nil || !strings.Contains(err.Error(), "nothing is mounted") {
		t.Errorf("a directory where nothing is mounted: %v", err)
	}
	if isFrozen(t, sub) {
		t.Error("it is frozen")
	}
	// Check only, do not freeze: a fault must not block the host.
	if err := freezable(open(t, "/")); err == nil || !strings.Contains(err.Error(), "root file system") {
		t.Errorf("the root: %v", err)
	}
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
	if !isFrozen(t, dir) {
		t.Error("the child did not freeze it")
	}
	if err := unix.Kill(-child.Process.Pid, unix.SIGKILL); err != nil { // with its process group
		t.Fatal(err)
	}
	_ = child.Wait()
	thawed(t, written)
}
