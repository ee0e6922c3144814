package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Process names one process for ever: a pid is given away again, but not with the same start time in the same boot.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks since boot
	Boot  string `json:"boot"`
}

// Identify returns the identity of a running process.
func Identify(pid int) (Process, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Process{}, err
	}
	start, state, err := parseStat(string(stat))
	if err != nil {
		return Process{}, err
	}
	if state == "Z" {
		return Process{}, fmt.Errorf("process %d has ended: %w", pid, fs.ErrNotExist)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return Process{}, err
	}
	return Process{PID: pid, Start: start, Boot: strings.TrimSpace(string(boot))}, nil
}

// parseStat reads behind the last parenthesis: the program's name before it may hold anything.
func parseStat(stat string) (start uint64, state string, err error) {
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	const stateField, startField = 0, 19
	if len(fields) <= startField {
		return 0, "", fmt.Errorf("stat of a process has %d fields after its name: %q", len(fields), stat)
	}
	start, err = strconv.ParseUint(fields[startField], 10, 64)
	return start, fields[stateField], err
}

// ReadProcess reads what Record wrote; no file is fs.ErrNotExist.
func ReadProcess(path string) (Process, error) {
	var p Process
	data, err := os.ReadFile(path)
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return p, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// Record writes the identity to a file, whole or not at all.
func (p Process) Record(path string) error {
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return WriteFile(path, data, 0o644)
}

// Alive reports whether this very process still runs.
func (p Process) Alive() bool {
	now, err := Identify(p.PID)
	return err == nil && now == p
}

// dying bounds the wait for the end of a process that was killed. On a busy machine the kernel takes seconds to close what
// a kubelet watches files by.
const dying = time.Minute

// Stop asks the process to end and kills it after the grace time. One that is not alive is no error.
func (p Process) Stop(ctx context.Context, grace time.Duration) error {
	// The descriptor names the process, so that a pid given away in between is not hit.
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("process %d: %w", p.PID, err)
	}
	defer unix.Close(fd)
	if !p.Alive() {
		return nil
	}
	if grace > 0 {
		if err := signal(fd, unix.SIGTERM); err != nil {
			return err
		}
		if ended(ctx, fd, grace) {
			return nil
		}
	}
	if err := signal(fd, unix.SIGKILL); err != nil {
		return err
	}
	if !ended(ctx, fd, dying) {
		return fmt.Errorf("process %d was killed %s ago and has not ended", p.PID, dying)
	}
	return nil
}

// AwaitEnd returns when the process of that number has ended.
func AwaitEnd(ctx context.Context, pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	for !ended(ctx, fd, time.Second) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

func signal(fd int, s unix.Signal) error {
	if err := unix.PidfdSendSignal(fd, s, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("%s: %w", s, err)
	}
	return nil
}

func ended(ctx context.Context, fd int, limit time.Duration) bool {
	deadline := time.Now().Add(limit)
	for ctx.Err() == nil {
		left := time.Until(deadline).Milliseconds()
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(max(left, 0)))
		if n > 0 {
			return true
		}
		if left <= 0 || (err != nil && !errors.Is(err, unix.EINTR)) {
			return false
		}
	}
	return false
}
