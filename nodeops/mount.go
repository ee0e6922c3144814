package nodeops

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/mount-utils"
)

// ErrDamaged means that the device does not have the expected file system, or one that cannot be mounted.
var ErrDamaged = errors.New("damaged file system")

// ErrNotMounted means that a directory is not where a file system is mounted.
var ErrNotMounted = errors.New("nothing is mounted there")

// mounter uses the zero value: it starts no systemd scope, and does not run umount to detect features.
func mounter() mount.Interface { return &mount.Mounter{} }

// MountFS mounts the file system of a device. It never formats. A failure because of the content is an ErrDamaged that
// says what to do. A mount that has started cannot be cancelled.
func MountFS(ctx context.Context, device, target, fstype string, options []string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("mounting %s: %w", device, err)
	}
	// The command mount interprets other types: "auto", lists, and the prefix "no".
	if _, err := SmallestFS(fstype); err != nil {
		return fmt.Errorf("mounting %s: %w", device, err)
	}
	if err := CheckMountOptions(options); err != nil {
		return fmt.Errorf("mounting %s: %w", device, err)
	}
	all := slices.Clone(options)
	if fstype == "xfs" && !slices.Contains(all, "nouuid") {
		all = append(all, "nouuid") // a clone is mounted beside its source
	}
	if fstype == "ext4" && !slices.ContainsFunc(all, func(o string) bool { return strings.HasPrefix(o, "errors=") }) {
		all = append(all, "errors=remount-ro") // it would go on writing to what it knows to be damaged
	}
	if mountAtOnce(device, target, fstype, all) == nil {
		return nil
	}
	if err := mounter().Mount(device, target, fstype, all); err != nil {
		return fmt.Errorf("mounting %s: %w", device, diagnose(ctx, device, fstype, options, oneLine(err)))
	}
	return nil
}

// mountAtOnce mounts by system calls. What one of them refuses is left to mount(8), which knows more options and reasons: nothing is
// mounted then.
func mountAtOnce(device, target, fstype string, options []string) error {
	config, err := unix.Fsopen(fstype, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(config)
	attributes, others := attributesOf(options)
	for i, o := range others {
		if key, value, _ := strings.Cut(o, "="); quotedLabel(key, value) {
			others[i] = key + "=" + strings.Trim(value, `"`)
		}
	}
	if attributes.Attr_set&unix.MOUNT_ATTR_RDONLY != 0 {
		others = append(others, "ro") // the file system too: Mount.Failed knows it by that
	}
	fd, err := newDetached(config, append(others, "source="+device), attributes)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.MoveMount(fd, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// repairs are the commands that repair a file system in an image that is not attached.
var repairs = map[string]string{"ext4": "e2fsck -f", "xfs": "xfs_repair", "btrfs": "btrfs check"}

// headRepairs are those of one whose start was overwritten, with a copy of what was there that lies further back.
var headRepairs = map[string]string{"ext4": "e2fsck -f -y -b 32768 -B 4096", "xfs": "xfs_repair", "btrfs": "btrfs rescue super-recover -y"}

// diagnose determines why a mount failed: the kernel's error has many possible causes.
func diagnose(ctx context.Context, device, fstype string, options []string, failure error) error {
	if known, err := os.ReadFile("/proc/filesystems"); err == nil && !slices.Contains(strings.Fields(string(known)), fstype) {
		return fmt.Errorf("the kernel of this host does not know %s; load its module: %w", fstype, failure)
	}
	found, err := signature(ctx, device)
	switch {
	case err != nil:
		return errors.Join(failure, err)
	case found == "":
		return fmt.Errorf("%w: no file system is on it, its start was overwritten or lost; delete its pods and run %s on a copy of its image, or restore it from a snapshot or backup: %w", ErrDamaged, headRepairs[fstype], failure)
	case found != fstype:
		return fmt.Errorf("%w: %s is on it, not %s; if that was not intended, restore the volume from a snapshot or backup: %w", ErrDamaged, found, fstype, failure)
	case slices.ContainsFunc(options, isSpecific):
		return fmt.Errorf("%s may not know one of the mount options %q; if it does, the file system is damaged: delete its pods and run %s on a copy of its image: %w", fstype, options, repairs[fstype], failure)
	}
	return fmt.Errorf("%w: delete its pods and run %s on a copy of its image, or restore it from a snapshot or backup: %w", ErrDamaged, repairs[fstype], failure)
}

// isSpecific returns whether an option is specific to a type of file system.
func isSpecific(option string) bool {
	return !slices.Contains([]string{"ro", "rw", "noatime", "nodiratime", "relatime", "nodev", "nosuid", "noexec", "sync", "discard"}, option)
}

// oneLine formats an error of mount-utils for a log.
func oneLine(err error) error { return errors.New(strings.Join(strings.Fields(err.Error()), " ")) }

// Bind bind-mounts source at target: a directory on a directory, a file or device on a file. Repeated, it adds a second
// mount; check with MountAt first. A read-only bind mount of a device does not prevent writes to the device.
func Bind(ctx context.Context, source, target string, readOnly bool, options []string) error {
	if err := ctx.Err(); err != nil {
		return wrapBind(source, target, err)
	}
	if err := CheckMountOptions(options); err != nil {
		return wrapBind(source, target, err)
	}
	if attributes, others := bindAttributes(readOnly, options); len(others) == 0 {
		if err := bindAtOnce(source, target, attributes); err == nil || !errors.Is(err, unix.ENOSYS) {
			return wrapBind(source, target, err)
		}
	}
	all := append([]string{"bind"}, options...)
	if readOnly {
		all = append(all, "ro")
	}
	before, err := stackAt(target)
	if err != nil {
		return err
	}
	if err := mounter().Mount(source, target, "", all); err != nil {
		err = wrapBind(source, target, oneLine(err))
		// The options, such as "ro", are set by a remount: if that fails, the mount must not stay.
		after, errStack := stackAt(target)
		if len(after) > len(before) {
			errStack = unmountTop(context.WithoutCancel(ctx), target)
		}
		return errors.Join(err, errStack)
	}
	return nil
}

func wrapBind(source, target string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("binding %s to %s: %w", source, target, err)
}

// bindAtOnce makes a bind mount that never is without its attributes: one that a kill left writable would be taken for
// that of another request. Before Linux 5.12 it fails with ENOSYS.
func bindAtOnce(source, target string, attributes unix.MountAttr) error {
	fd, err := cloneMount(source, attributes)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return os.NewSyscallError("move_mount", unix.MoveMount(fd, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH))
}

// Unmount removes all mounts at target, if there are any.
func Unmount(ctx context.Context, target string) error {
	for {
		if err := MustBeMounted(target); errors.Is(err, ErrNotMounted) || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("unmounting %s: %w", target, err)
		}
		if err := unmountTop(ctx, target); err != nil {
			return fmt.Errorf("unmounting %s; if it is busy, stop the processes that have files open there: %w", target, err)
		}
	}
}

// A process that inspects a file system, such as a health check, has it open for a moment.
const (
	busyGrace = time.Second
	busyPause = 10 * time.Millisecond
)

func unmountTop(ctx context.Context, target string) error {
	var last error
	_, _ = tryAgain(ctx, busyGrace, busyPause, func() (bool, error) {
		last = os.NewSyscallError("umount", unix.Unmount(target, unix.UMOUNT_NOFOLLOW))
		return !errors.Is(last, unix.EBUSY), nil // last has its error
	})
	return last
}

// MustBeMounted returns ErrNotMounted unless something is mounted at path: if a volume is not, its mount point is an empty
// directory of another file system.
func MustBeMounted(path string) error {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_INO, &st); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return fmt.Errorf("%s: %w", path, ErrNotMounted)
	}
	return nil
}
