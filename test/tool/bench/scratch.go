package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// scratch is a directory in which file systems are made and mounted, and which leaves nothing behind.
type scratch struct{ path string }

func newScratch(parent string) (scratch, error) {
	path, err := os.MkdirTemp(parent, "holdfast-")
	if err != nil {
		return scratch{}, err
	}
	if path, err = filepath.Abs(path); err != nil {
		return scratch{}, err
	}
	path, err = filepath.EvalSymlinks(path) // as mounts are listed
	return scratch{path}, err
}

var mkfs = map[string]string{
	"xfs":   "mkfs.xfs -q -m reflink=1",
	"ext4":  "mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0",
	"btrfs": "mkfs.btrfs -q",
}

// fileSystem makes a file system in a sparse file and returns where it is mounted. Its loop device reads and writes
// the file directly, so that there is one page cache and not two, and ends with the mount.
func (d scratch) fileSystem(ctx context.Context, fs string, size int64) (string, error) {
	mount := filepath.Join(d.path, fs)
	_, err := shell(ctx, `truncate -s "$2" "$1.disk" && `+mkfs[fs]+` "$1.disk" &&
		device=$(losetup --find --show --direct-io=on "$1.disk") && mkdir "$1" && mount "$device" "$1" &&
		losetup -d "$device"`, mount, strconv.FormatInt(size, 10))
	return mount, err
}

// remove ends every mount and loop device below the directory, the last first, and removes it.
func (d scratch) remove(ctx context.Context) error {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	var errs []error
	for _, line := range slices.Backward(strings.Split(string(mounts), "\n")) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], d.path+"/") {
			_, err := shell(ctx, `umount "$1" || { fsfreeze -u "$1"; umount "$1"; } || umount -l "$1"`, fields[1])
			errs = append(errs, err)
		}
	}
	// One that is detached with its mount is gone, and its name may belong to another device by now.
	_, err = shell(ctx, `losetup --noheadings --list --output NAME,AUTOCLEAR,BACK-FILE | while read -r device autoclear file; do
		case "$autoclear$file" in 0"$1"/*) losetup -d "$device";; esac; done`, d.path)
	return errors.Join(append(errs, err, os.RemoveAll(d.path))...)
}

// shell runs a script with its arguments and returns what it printed.
func shell(ctx context.Context, script string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", script, "sh"}, args...)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(strings.Fields(script), " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}
