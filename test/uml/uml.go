// Package uml runs a program as root on a second kernel, User Mode Linux, which has what the machine's own kernel may
// lack: project quotas of xfs and ext4, to begin with. It boots in seconds as an ordinary process.
package uml

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// Machine is a second kernel with the host's own files, read-only, and a fresh disk on /tmp.
type Machine struct {
	MemoryMiB int
	DiskBytes int64
	// Work is a directory of the host that is seen as /run/work.
	Work string
}

const (
	kernel  = "linux.uml"
	modules = "/usr/lib/uml/modules"
)

// Missing says what of the second kernel is not installed, or "".
func Missing() string {
	for _, name := range []string{kernel, "modprobe", "mkfs.ext4"} {
		if _, err := exec.LookPath(name); err != nil {
			return name + " is not installed; the Debian packages user-mode-linux, kmod and e2fsprogs bring it"
		}
	}
	return ""
}

// init of the second kernel. The kernel itself asks for modules under /lib/modules.
const initScript = `#!/bin/sh
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C TMPDIR=/tmp HOME=/tmp
mount -t proc proc /proc && mount -t sysfs sys /sys && mount -t devtmpfs dev /dev
mount -t tmpfs run /run && mkdir /run/work && mount --bind %[1]s /run/work
mount -t tmpfs modules /lib/modules && ln -s %[2]s/* /lib/modules/
mkfs.ext4 -q -F /dev/ubda && mount /dev/ubda /tmp && modprobe loop
ip link set lo up 2>/dev/null
cd /tmp
echo; echo %[3]s begin
%[4]s
status=$?
echo; echo %[3]s end $status
sync
while :; do sleep 3600; done
`

// Run boots a machine, runs argv in it with the environment, copies what it prints to out, and returns its exit
// status. The machine is gone when Run returns, and also when this process is killed.
func Run(ctx context.Context, m Machine, argv, env []string, out io.Writer) (status int, err error) {
	scratch, err := os.MkdirTemp("", "holdfast-uml-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(scratch)
	// The host's tree is read-only inside, so that what is mounted over must be there.
	if err := os.MkdirAll("/lib/modules", 0o755); err != nil {
		return 0, err
	}
	mark := "holdfast-" + rand.Text()
	script := fmt.Sprintf(initScript, quote(m.Work), modules, mark, quote(append(append([]string{"env"}, env...), argv...)...))
	initPath, disk := filepath.Join(scratch, "init"), filepath.Join(scratch, "disk")
	err = errors.Join(os.WriteFile(initPath, []byte(script), 0o755), os.WriteFile(disk, nil, 0o600), os.Truncate(disk, m.DiskBytes))
	if err != nil {
		return 0, err
	}
	return boot(ctx, m, initPath, disk, mark, out)
}

func boot(ctx context.Context, m Machine, initPath, disk, mark string, out io.Writer) (int, error) {
	parent := ctx
	ctx, stop := context.WithCancel(parent)
	defer stop()
	cmd := exec.CommandContext(ctx, kernel, fmt.Sprintf("mem=%dM", m.MemoryMiB), "rootfstype=hostfs", "root=/dev/root", "rootflags=/",
		"ro", "init="+initPath, "ubda="+disk, "con=null", "con0=fd:0,fd:1", "quiet")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	// The kernel ends with the thread that started it, so that thread must stay until then.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	status, err := relay(stdout, mark, out)
	stop()
	_ = cmd.Wait() // killed on purpose
	if err != nil {
		return 0, fmt.Errorf("the second kernel ended before the program did: %w", errors.Join(parent.Err(), err))
	}
	return status, nil
}

// relay copies the program's output, without the kernel's own before it, until its status is told.
func relay(console io.Reader, mark string, out io.Writer) (status int, err error) {
	lines := bufio.NewReader(console)
	var before strings.Builder
	begun := false
	for {
		line, err := lines.ReadString('\n')
		line = strings.TrimRight(line, "\r\n")
		switch word, rest, _ := strings.Cut(line, " "); {
		case word == mark && rest == "begin":
			begun = true
		case word == mark:
			return strconv.Atoi(strings.TrimPrefix(rest, "end "))
		case begun:
			fmt.Fprintln(out, line)
		default:
			fmt.Fprintln(&before, line)
		}
		if err != nil {
			return 0, fmt.Errorf("%w; it had printed:\n%s", err, before.String())
		}
	}
}

// quote makes one shell word of each argument.
func quote(args ...string) string {
	var words []string
	for _, a := range args {
		words = append(words, "'"+strings.ReplaceAll(a, "'", `'\''`)+"'")
	}
	return strings.Join(words, " ")
}
