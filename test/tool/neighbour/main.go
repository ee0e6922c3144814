// Command neighbour runs a command beside a neighbour that takes a part of every processor at any time, as on a host
// that is shared: before everybody else, and in the middle of anything. What waits for a moment too short fails there.
//
//	go run ./test/tool/neighbour make test
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// priority is above all that is not real-time.
const priority = 10

func main() {
	busy := flag.Duration("busy", 30*time.Millisecond, "how long each processor is taken")
	rest := flag.Duration("rest", 40*time.Millisecond, "how long it is left to others then")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: neighbour [-busy 30ms] [-rest 40ms] command [argument...]")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 || *busy <= 0 || *rest <= 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	err := run(ctx, *busy, *rest, flag.Args())
	stop()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok && failed.Exited() {
		os.Exit(failed.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "neighbour:", err)
		os.Exit(1)
	}
}

// run returns when the command has ended, and with it the neighbour.
func run(ctx context.Context, busy, rest time.Duration, command []string) error {
	for processor := range runtime.NumCPU() {
		placed := make(chan error)
		go func() {
			runtime.LockOSThread()
			placed <- place(processor)
			live(busy, rest)
		}()
		if err := <-placed; err != nil {
			return fmt.Errorf("taking processor %d before everybody else, which only root may: %w", processor, err)
		}
	}
	fmt.Printf("== beside a neighbour who takes %s of every %s of %d processors\n", busy, busy+rest, runtime.NumCPU())
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	c.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return unix.Kill(-c.Process.Pid, unix.SIGTERM) } // also what make leaves running when it is ended
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	return c.Run()
}

// place keeps this thread on a processor, where it goes first.
func place(processor int) error {
	var there unix.CPUSet
	there.Set(processor)
	if err := unix.SchedSetaffinity(0, &there); err != nil {
		return err
	}
	return unix.SchedSetAttr(0, &unix.SchedAttr{Policy: unix.SCHED_FIFO, Priority: priority, Flags: unix.SCHED_FLAG_RESET_ON_FORK}, 0)
}

func live(busy, rest time.Duration) {
	pause := unix.NsecToTimespec(rest.Nanoseconds()) // of this thread: the others of this process wait their turn
	for {
		for until := time.Now().Add(busy); time.Now().Before(until); {
		}
		_ = unix.Nanosleep(&pause, nil)
	}
}
