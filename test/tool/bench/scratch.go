package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

var mkfs = map[string]string{
	"xfs":   "mkfs.xfs -q -m reflink=1",
	"ext4":  "mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0",
	"btrfs": "mkfs.btrfs -q",
}

// place is a scratch directory with a file system in it, and a directory for sockets, whose paths must be short.
type place struct{ scratch, disk, run string }

// inPlace makes a place, with directories in its file system, and leaves nothing of it behind whatever happens. The loop
// device reads and writes its file directly, so that there is one page cache and not two, and ends with the mount.
func (b *runner) inPlace(ctx context.Context, fs string, size int64, use func(place) error, dirs ...string) (err error) {
	scratch, err := shell(ctx, `realpath "$(mktemp --directory "$1/holdfast-XXXXXX")"`, b.scratch) // as mounts are listed
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove(context.WithoutCancel(ctx), scratch)) }()
	run, err := os.MkdirTemp("", "holdfast-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(run)
	b.sayf("making a pool of %d GiB of %s", size/gib, fs)
	disk := filepath.Join(scratch, fs)
	_, err = shell(ctx, `truncate -s "$2" "$1.disk" && `+mkfs[fs]+` "$1.disk" &&
		device=$(losetup --find --show --direct-io=on "$1.disk") && mkdir "$1" && mount "$device" "$1" &&
		losetup -d "$device" && cd "$1" && shift 2 && mkdir "$@"`, append([]string{disk, strconv.FormatInt(size, 10)}, dirs...)...)
	if err != nil {
		return err
	}
	return use(place{scratch, disk, run})
}

// remove ends every mount and loop device below a directory, the last first, and removes it. A loop device that is
// detached with its mount is gone, and its name may belong to another device by then.
func remove(ctx context.Context, dir string) error {
	_, err := shell(ctx, `tac /proc/self/mounts | while read -r device mount rest; do
		case "$mount" in "$1"/*) umount "$mount" || { fsfreeze -u "$mount"; umount "$mount"; } || umount -l "$mount";; esac; done
		losetup --noheadings --list --output NAME,AUTOCLEAR,BACK-FILE | while read -r device autoclear file; do
		case "$autoclear$file" in 0"$1"/*) losetup -d "$device";; esac; done`, dir)
	return errors.Join(err, os.RemoveAll(dir))
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
