package main

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestLocker_HeldLockIsNotAwaitedWithTheFlag(t *testing.T) {
	path, done := filepath.Join(t.TempDir(), "lock"), filepath.Join(t.TempDir(), "done")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if err := run([]string{"-n", path, "touch", done}); !errors.Is(err, syscall.EWOULDBLOCK) {
		t.Errorf("while it is held: %v", err)
	}
	if _, err := os.Stat(done); err == nil {
		t.Error("the command was run without the lock")
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"-n", path, "touch", done}, {path, "rm", done}} {
		if err := run(args); err != nil {
			t.Errorf("%v: %v", args, err)
		}
	}
}

func TestLocker_OtherFailureIsNotTakenForAHeldLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	for _, args := range [][]string{nil, {"-n"}, {path}, {"-n", path}, {"-n", path, "false"}, {"-n", path + "/below", "true"}} {
		if err := run(args); err == nil || errors.Is(err, syscall.EWOULDBLOCK) {
			t.Errorf("%v: %v", args, err)
		}
	}
}
