package uml

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Seldom a kernel of this kind hangs while it boots, spinning, without a word. It is known by the processor time that it
// has spent, which does not depend on what else the machine does: one that boots needs a second or two.
const (
	bootTime     = 15 * time.Second
	bootAttempts = 5
)

var errHung = errors.New("the second kernel hangs while it boots")

// watchBoot switches a machine off that hangs before its first process runs.
func watchBoot(ctx context.Context, hang context.CancelCauseFunc, scratch string, keeper int) {
	look := time.NewTicker(200 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		if _, err := os.Stat(filepath.Join(scratch, "booted")); err == nil {
			return
		}
		if took := spentWith(keeper); took > bootTime {
			hang(fmt.Errorf("%w: it has spent %s of a processor", errHung, took))
			return
		}
	}
}

// spentWith is the processor time of all processes in the PID namespace of a process.
func spentWith(pid int) (all time.Duration) {
	namespace, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	if err != nil {
		return 0 // it has ended
	}
	links, _ := filepath.Glob("/proc/[0-9]*/ns/pid") // the pattern is good
	for _, link := range links {
		if of, err := os.Readlink(link); err != nil || of != namespace {
			continue
		}
		stat, _ := os.ReadFile(filepath.Join(filepath.Dir(link), "../stat")) // empty of one that has ended
		all += spent(string(stat))
	}
	return all
}

// spent reads utime and stime, which proc(5) counts in hundredths of a second.
func spent(stat string) time.Duration {
	const utime, stime = 14 - 3, 15 - 3 // what is before the third field may have spaces
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) <= stime {
		return 0
	}
	user, err := strconv.Atoi(fields[utime])
	system, other := strconv.Atoi(fields[stime])
	if errors.Join(err, other) != nil {
		return 0
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}
