package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// job is what the machine is to do; package uml writes it.
type job struct {
	Argv, Env []string
	Work      string // directory of the host
	Address   string // of the network interface, with the length of its prefix; empty if there is none
	// Restart boots the machine again when the job fails, as a kernel does after a panic. Seldom a system call fails on this
	// kind of kernel that cannot fail, and a program of Go gives up: "epollwait failed with 38".
	Restart bool
}

// guest is the machine's first process. It never returns while the machine is on.
func guest() error {
	dir := os.Getenv(machineDir)
	j, err := readJob(dir)
	status := 0
	if err == nil {
		status, err = work(dir, j)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "status"), []byte(strconv.Itoa(status)), 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "runner:", err)
	}
	unix.Sync()
	next := unix.LINUX_REBOOT_CMD_POWER_OFF
	if j.Restart && (err != nil || status != 0) {
		fmt.Fprintln(os.Stderr, "runner: the job ended with status", status, "and the machine boots again")
		next = unix.LINUX_REBOOT_CMD_RESTART
	}
	return errors.Join(err, unix.Reboot(next))
}

func readJob(dir string) (j job, err error) {
	b, err := os.ReadFile(filepath.Join(dir, "job"))
	if err != nil {
		return j, err
	}
	return j, json.Unmarshal(b, &j)
}

func work(dir string, j job) (status int, err error) {
	if err := os.Setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"); err != nil {
		return 0, err
	}
	if err := furnish(dir, j.Work); err != nil {
		return 0, err
	}
	if err := os.WriteFile(filepath.Join(dir, "booted"), nil, 0o600); err != nil { // package uml waits for it
		return 0, err
	}
	if err := os.WriteFile("/proc/sys/kernel/modprobe", []byte(filepath.Join(dir, "runner")), 0); err != nil {
		return 0, err
	}
	if err := modprobe("loop"); err != nil {
		return 0, err
	}
	if err := connect(j.Address); err != nil {
		return 0, fmt.Errorf("connecting the machine to the network as %s: %w", j.Address, err)
	}
	return runToEnd(j)
}

// furnish makes the machine one that programs expect: the host's tree is read-only.
func furnish(dir, work string) error {
	for _, m := range []struct{ fstype, target, options string }{
		{"proc", "/proc", ""},
		{"sysfs", "/sys", ""},
		{"tmpfs", "/run", "mode=0755"},
		{"tmpfs", "/var/log", "mode=0755"},
		{"devpts", "/dev/pts", "ptmxmode=0666"},
		{"tmpfs", "/dev/shm", "mode=1777"},
	} {
		if err := mount(m.fstype, m.fstype, m.target, m.options); err != nil {
			return err
		}
	}
	if err := scratch("/dev/ubda", "/tmp"); err != nil {
		return err
	}
	err := mount("hostfs", "hostfs", dir, dir) // it lay below what is now the disk
	if err == nil && work != "" {
		err = mount("hostfs", "hostfs", "/run/work", work)
	}
	return errors.Join(err, os.Symlink("/proc/self/fd", "/dev/fd"), loopbackUp())
}

// scratch makes a disk the place for temporary files. What is on it need not survive, so it has no journal.
func scratch(device, target string) error {
	mkfs := exec.Command("mkfs.ext4", "-q", "-O", "^has_journal", "-m", "0", device)
	if out, err := mkfs.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", mkfs, err, out)
	}
	if err := mount(device, "ext4", target, ""); err != nil {
		return err
	}
	return os.Chmod(target, 0o777|fs.ModeSticky)
}

func mount(device, fstype, target, options string) error {
	err := os.MkdirAll(target, 0o755)
	if err == nil {
		err = unix.Mount(device, target, fstype, 0, options)
	}
	if err != nil {
		return fmt.Errorf("mounting %s at %s: %w", fstype, target, err)
	}
	return nil
}

// runToEnd runs the job and, as the first process must, waits for all that others left behind.
func runToEnd(j job) (status int, err error) {
	terminal, err := openTerminal("/dev/tty1")
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(j.Argv[0], j.Argv[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/tmp", terminal, terminal
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=/tmp"}, j.Env...)
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	for {
		var w unix.WaitStatus
		pid, err := unix.Wait4(-1, &w, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR) || err == nil && pid != cmd.Process.Pid:
			continue
		case err != nil:
			return 0, err
		}
		// The machine must not be switched off before its terminal has passed everything on.
		if err := unix.IoctlSetInt(int(terminal.Fd()), unix.TCSBRK, 1); err != nil {
			return 0, err
		}
		if w.Signaled() {
			return 128 + int(w.Signal()), nil
		}
		return w.ExitStatus(), nil
	}
}

// openTerminal opens a terminal that changes nothing in what is written to it.
func openTerminal(name string) (*os.File, error) {
	terminal, err := os.OpenFile(name, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	settings, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
	if err != nil {
		return nil, err
	}
	settings.Oflag &^= unix.OPOST
	return terminal, unix.IoctlSetTermios(int(terminal.Fd()), unix.TCSETS, settings)
}
