package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// What is between the machine's kernel and the libraries of this machine.
var (
	//go:embed preload/registers.c
	registers string
	//go:embed preload/tick.c
	tick string
)

// boot becomes the machine's kernel. What that needs is made in a directory.
func boot(dir string, argv []string) error {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return err
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil { // a core would be all its memory
		return err
	}
	library := filepath.Join(dir, "preload.so")
	compile := exec.Command("cc", "-O2", "-shared", "-fPIC", "-Wall", "-Werror", "-x", "c", "-o", library, "-")
	compile.Stdin = strings.NewReader(registers + tick)
	if out, err := compile.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", compile, err, out)
	}
	if err := pin(); err != nil {
		return fmt.Errorf("keeping the machine on one processor: %w", err)
	}
	return unix.Exec(path, argv, append(os.Environ(), "LD_PRELOAD="+library))
}

// bootInSession becomes the machine's kernel, which with its programs is a session of its own, and has the part of its
// processor that eight others have: its programs take turns with it, so beside what computes they would be those who wait.
// A test cluster weighs as much.
func bootInSession(dir string, argv []string) error {
	const nice = "-9"
	err := os.WriteFile("/proc/self/autogroup", []byte(nice), 0o644)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a kernel without it weighs processes, not sessions
		return err
	}
	return boot(dir, argv)
}

// pin keeps the thread that runs this, and what it becomes or starts, on one processor: of those that it may use, one
// that the fewest machines are on. The machine's kernel and its programs are processes that wait for each other at every
// system call; between two processors each turn takes several times as long.
func pin() error {
	runtime.LockOSThread()
	var may, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		return err
	}
	for layer := 0; ; layer++ {
		for cpu := range len(may) * strconv.IntSize {
			if !may.IsSet(cpu) {
				continue
			}
			taken, err := take(fmt.Sprintf("@holdfast-uml/processor/%d/%d", cpu, layer))
			if err != nil {
				return err
			}
			if taken {
				one.Set(cpu)
				return unix.SchedSetaffinity(0, &one)
			}
		}
	}
}

// take binds a name that others then cannot, until the last process that has inherited it from this one ends.
func take(name string) (bool, error) {
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	if err != nil {
		return false, err
	}
	err = unix.Bind(socket, &unix.SockaddrUnix{Name: name})
	if err != nil {
		unix.Close(socket)
	}
	if errors.Is(err, unix.EADDRINUSE) {
		return false, nil
	}
	return err == nil, err
}
