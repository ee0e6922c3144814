package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Daemon is a process that outlives the one that starts it.
type Daemon struct {
	Argv   []string
	Env    []string
	Dir    string
	Log    string // stdout and stderr are added to it
	Record string // its identity, written by itself before the program begins, so that a crash of ours loses none
	NetNS  string // file of a network namespace, or ""
	Cgroup string // joined in every hierarchy, or ""
}

// Entry is the argument by which a program calls itself to become a Daemon: its main gives the rest to Become.
const Entry = "become-daemon"

// Start starts the daemon and returns when its program has begun.
func Start(ctx context.Context, d Daemon) (Process, error) {
	if err := ctx.Err(); err != nil {
		return Process{}, err
	}
	spec, err := json.Marshal(d)
	if err != nil {
		return Process{}, err
	}
	if err := os.MkdirAll(filepath.Dir(d.Log), 0o755); err != nil {
		return Process{}, err
	}
	log, err := os.OpenFile(d.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return Process{}, err
	}
	defer log.Close()
	begun, report, err := os.Pipe()
	if err != nil {
		return Process{}, err
	}
	defer begun.Close()
	// Without a context: the daemon outlives it.
	cmd := exec.Command("/proc/self/exe", Entry, string(spec))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{report}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	report.Close()
	if err != nil {
		return Process{}, err
	}
	go func() { _ = cmd.Wait() }() // no zombie while we live
	// The pipe closes with the exec of the program, or brings the reason why there was none.
	_ = begun.SetReadDeadline(time.Now().Add(30 * time.Second))
	reason, err := io.ReadAll(begun)
	if err != nil || len(reason) > 0 {
		return Process{}, fmt.Errorf("start %s: %w", d.Argv[0], errors.Join(err, errors.New(string(reason))))
	}
	return ReadProcess(d.Record)
}

// Become turns this process into the daemon. It returns only an error, which Start reports.
func Become(spec string) error {
	report := os.NewFile(3, "report")
	unix.CloseOnExec(3)
	err := become(spec)
	fmt.Fprint(report, err)
	return err
}

func become(spec string) error {
	var d Daemon
	if err := json.Unmarshal([]byte(spec), &d); err != nil {
		return err
	}
	// The namespace is entered by one thread, and that thread calls exec.
	runtime.LockOSThread()
	if d.Cgroup != "" {
		if err := JoinCgroup(d.Cgroup, os.Getpid()); err != nil {
			return err
		}
	}
	if d.NetNS != "" {
		if err := EnterNetNS(d.NetNS); err != nil {
			return err
		}
	}
	if d.Dir != "" {
		if err := os.Chdir(d.Dir); err != nil {
			return err
		}
	}
	self, err := Identify(os.Getpid())
	if err != nil {
		return err
	}
	if err := self.Record(d.Record); err != nil {
		return err
	}
	program, err := exec.LookPath(d.Argv[0])
	if err != nil {
		return errors.Join(err, os.Remove(d.Record))
	}
	err = syscall.Exec(program, d.Argv, append(os.Environ(), d.Env...))
	return fmt.Errorf("exec %s: %w", program, err)
}
