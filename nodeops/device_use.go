package nodeops

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// BootID identifies the current boot of the host's kernel.
func BootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("determining when the host was booted: %w", err)
	}
	return strings.TrimSpace(string(id)), nil
}

// appearance distinguishes a device from a later one with the same name and number, until the next boot: it has the
// kernel's disk sequence number, if there is one, and the inode in /dev.
func appearance(dir, path, number string) string {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return ""
	}
	return fmt.Sprintf("%s %s %d", number, attribute(dir, "diskseq"), st.Ino)
}

// longestSearch bounds the search for a process among those of the host.
const longestSearch = 30 * time.Second

// UserOf returns what uses a device, or "".
func (h Host) UserOf(ctx context.Context, d *Device) (string, error) {
	if len(d.Holders) > 0 {
		return "it is part of " + strings.Join(d.Holders, ", "), nil
	}
	for _, ask := range []func(*Device) (string, error){h.mountOf, loopOver} {
		if user, err := ask(d); user != "" || err != nil {
			return user, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, longestSearch)
	defer cancel()
	var search offThread[string] // a file on a dead server may block the kernel
	return search.do(ctx, d.Path, "determining which process has "+d.Path+" open", func() (string, error) { return h.processWith(d) })
}

// mountOf finds a mount of the device, or a bind mount of its device node, which the kubelet makes for a pod.
func (h Host) mountOf(d *Device) (string, error) {
	table, err := os.ReadFile(filepath.Join(h.proc(), "mountinfo"))
	if err != nil {
		return "", fmt.Errorf("the mounts of the host: %w", err)
	}
	for _, m := range parseMounts(string(table)) {
		if m.Device == d.Number {
			return "it is mounted at " + m.Target, nil
		}
		if m.FSType == "devtmpfs" && m.Root == "/"+d.Name {
			return "its node is mounted at " + m.Target + ", as for a container", nil
		}
	}
	return "", nil
}

// loopOver finds a loop device on top of the device, which the kubelet attaches for a pod.
func loopOver(d *Device) (string, error) {
	for _, loop := range AttachedLoops() {
		var status *unix.LoopInfo64
		err := onDevice(loop, func(fd int) (err error) {
			status, err = unix.IoctlLoopGetStatus64(fd)
			return err
		})
		if errors.Is(err, unix.ENXIO) || errors.Is(err, os.ErrNotExist) {
			continue // it was removed concurrently
		}
		if err != nil {
			return "", fmt.Errorf("determining the file of %s: %w", loop, err)
		}
		if fmt.Sprintf("%d:%d", unix.Major(status.Rdevice), unix.Minor(status.Rdevice)) == d.Number {
			return "it is attached to " + loop, nil
		}
	}
	return "", nil
}

// processWith finds a process that has the device open.
func (h Host) processWith(d *Device) (string, error) {
	proc := filepath.Dir(h.proc())
	processes, err := os.ReadDir(proc)
	if err != nil {
		return "", err
	}
	self, err := os.Readlink(filepath.Join(proc, "self"))
	if err != nil {
		return "", err
	}
	for _, p := range processes {
		if _, err := strconv.Atoi(p.Name()); err != nil || p.Name() == self {
			continue
		}
		files, err := os.ReadDir(filepath.Join(proc, p.Name(), "fd"))
		if err != nil {
			if gone(err) {
				continue
			}
			return "", err
		}
		if slices.ContainsFunc(files, func(f os.DirEntry) bool {
			return DeviceNumber(filepath.Join(proc, p.Name(), "fd", f.Name())) == d.Number
		}) {
			name, _ := os.ReadFile(filepath.Join(proc, p.Name(), "comm"))
			return fmt.Sprintf("process %s (%s) has it open", p.Name(), strings.TrimSpace(string(name))), nil
		}
	}
	return "", nil
}

func gone(err error) bool { return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) }
