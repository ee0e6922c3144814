package main

import (
	_ "embed"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

//go:embed ptrace/registers.c
var registers string

// boot becomes the machine's kernel.
func boot(dir string, argv []string) error {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return err
	}
	env, err := around(dir)
	if err != nil {
		return err
	}
	return unix.Exec(path, argv, env)
}

// around makes in a directory, and of this process, what the machine's kernel needs. It returns its environment.
func around(dir string) (env []string, err error) {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil { // a core would be all its memory
		return nil, err
	}
	library := filepath.Join(dir, "registers.so")
	compile := exec.Command("cc", "-O2", "-shared", "-fPIC", "-Wall", "-Werror", "-x", "c", "-o", library, "-")
	compile.Stdin = strings.NewReader(registers)
	if out, err := compile.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", compile, err, out)
	}
	if err := pin(); err != nil {
		return nil, fmt.Errorf("keeping the machine on one processor: %w", err)
	}
	return append(os.Environ(), "LD_PRELOAD="+library), nil
}

// pin keeps the thread that runs this, and what it becomes or starts, on one processor, any of those it may use. The
// machine's kernel and its programs are processes that wait for each other at every system call; between two processors
// each turn takes several times as long.
func pin() error {
	runtime.LockOSThread()
	var may, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		return err
	}
	chosen := rand.IntN(may.Count())
	for cpu := 0; ; cpu++ {
		if !may.IsSet(cpu) {
			continue
		}
		if chosen == 0 {
			one.Set(cpu)
			return unix.SchedSetaffinity(0, &one)
		}
		chosen--
	}
}
