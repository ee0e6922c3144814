package uml

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

var small = Machine{MemoryMiB: 256, DiskBytes: 1 << 30}

// bootLimit is far above what a machine needs to boot and run a command.
const bootLimit = 5 * time.Minute

func requireMachine(t *testing.T) context.Context {
	t.Helper()
	if testing.Short() {
		t.Skip("boots a second kernel, on which some tests take minutes; run without -short")
	}
	hostfs.RequireRoot(t)
	if missing := Missing(); missing != "" {
		hostfs.Skip(t, "uml", missing)
	}
	ctx, cancel := context.WithTimeout(t.Context(), bootLimit)
	t.Cleanup(cancel)
	return ctx
}

func TestMachine_ReturnsTheExitCodeOfTheProgram(t *testing.T) {
	ctx := requireMachine(t)
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -9 $$": 137} {
		if status, err := Run(ctx, small, []string{"sh", "-c", script}, nil, io.Discard); err != nil || status != want {
			t.Errorf("%s: status %d, %v, want %d", script, status, err, want)
		}
	}
}

func TestMachine_DeadKernelIsAnErrorWithItsLastWords(t *testing.T) {
	ctx := requireMachine(t)
	status, err := Run(ctx, small, []string{"sh", "-c", "echo c >/proc/sysrq-trigger; sleep 600"}, nil, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "Kernel panic") {
		t.Errorf("status %d, %v, want an error with the kernel's panic", status, err)
	}
}

func TestMachine_NothingOutlivesAKilledCaller(t *testing.T) {
	ctx := requireMachine(t)
	if os.Getenv("HOLDFAST_VICTIM") != "" {
		status, err := Run(ctx, small, []string{"sh", "-c", "echo up; sleep 600"}, nil, os.Stderr)
		t.Fatal(status, err)
	}
	dir := t.TempDir()
	victim := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+t.Name()+"$")
	victim.Env = append(os.Environ(), "HOLDFAST_VICTIM=1", "TMPDIR="+dir)
	stderr := check.Got(victim.StderrPipe())(t)
	check.OK(t, victim.Start())
	check.Got(io.ReadFull(stderr, make([]byte, len("up\n"))))(t)
	left := machines(t, dir)
	if len(left) < 3 {
		t.Fatalf("%d processes, want the keeper, the kernel and what it runs", len(left))
	}
	check.OK(t, victim.Process.Kill())
	_ = victim.Wait() // killed
	for process, fd := range left {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(bootLimit.Milliseconds()))
		for err == unix.EINTR {
			n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(bootLimit.Milliseconds()))
		}
		if n != 1 || err != nil {
			t.Errorf("it still runs (%v): %s", err, process)
		}
	}
	nothingLeft(t, dir)
}

// machines returns handles of the processes whose command line names a directory.
func machines(t *testing.T, dir string) map[string]int {
	t.Helper()
	found := map[string]int{}
	files := check.Got(filepath.Glob("/proc/[0-9]*/cmdline"))(t)
	for _, file := range files {
		line, err := os.ReadFile(file)
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil || !bytes.Contains(line, []byte(dir)) {
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0)
		check.OK(t, err)
		t.Cleanup(func() { unix.Close(fd) })
		found[fmt.Sprintf("%d %s", pid, bytes.ReplaceAll(line, []byte{0}, []byte(" ")))] = fd
	}
	return found
}

func nothingLeft(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	for process := range machines(t, dir) {
		t.Errorf("left running: %s", process)
	}
}

// Without it a machine stands still for ever once it has lost a tick of its own timer.
func TestMachine_GetsATickThatItHasNotAskedFor(t *testing.T) {
	ctx, end := context.WithCancel(requireMachine(t))
	defer end()
	in, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		_, err := Run(ctx, small, []string{"sh", "-c", "echo up; sleep 1000"}, nil, out)
		ended <- errors.Join(err, out.Close())
	}()
	if line, err := bufio.NewReader(in).ReadString('\n'); err != nil || line != "up\n" {
		t.Fatalf("it prints %q, %v", line, err)
	}
	go func() { _, _ = io.Copy(io.Discard, in) }()
	timers := 0
	for _, pid := range descendants("self") {
		if text, err := os.ReadFile("/proc/" + pid + "/timers"); err == nil {
			timers += strings.Count(string(text), "\nsignal: "+strconv.Itoa(int(unix.SIGALRM))+"/")
		}
	}
	if timers != 2 {
		t.Errorf("the machine has %d timers, not its own and one more", timers)
	}
	end()
	t.Logf("it was ended: %v", <-ended)
}

// descendants are the processes that one has started, with theirs.
func descendants(pid string) (pids []string) {
	threads, _ := filepath.Glob("/proc/" + pid + "/task/*/children")
	for _, file := range threads {
		text, _ := os.ReadFile(file) // of a thread that may have ended
		for child := range strings.FieldsSeq(string(text)) {
			pids = append(append(pids, child), descendants(child)...)
		}
	}
	return pids
}
