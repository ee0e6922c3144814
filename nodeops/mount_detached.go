package nodeops

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// detachedMounts mounts in two steps. The first creates a detached mount; it contacts a server and may hang in the
// kernel indefinitely. The second attaches it at its target, unless the caller no longer waits for it. So a mount that
// hangs never appears later unexpectedly. A call that hangs occupies a thread, so there is at most one per target.
type detachedMounts struct {
	mu      sync.Mutex
	running map[string]*detachedMount // by target
}

type detachedMount struct {
	what   string // source and options, to distinguish a new request from a repeated one
	done   chan struct{}
	opened newMount
	err    error
	wanted int // number of waiting callers
}

var detached detachedMounts

// newMount is a mount that is nowhere yet.
type newMount struct {
	fd     int
	client CephClient // of a CephFS
}

// mountAt attaches at target the mount that open creates, or fails when ctx ends. Nothing sees the mount before ready, which
// may be nil, has returned without an error.
func (d *detachedMounts) mountAt(ctx context.Context, target, what string, open func() (newMount, error), ready func(newMount) error) error {
	m, err := d.join(target, what, open)
	if err != nil {
		return err
	}
	defer d.leave(target, m)
	select {
	case <-m.done:
	case <-ctx.Done():
		return fmt.Errorf("the server does not answer, and the kernel still waits for it: %w", ctx.Err())
	}
	if m.err != nil {
		return m.err
	}
	if ready != nil {
		if err := ready(m.opened); err != nil {
			return err
		}
	}
	if err := unix.MoveMount(m.opened.fd, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return os.NewSyscallError("move_mount", err)
	}
	return nil
}

func (d *detachedMounts) join(target, what string, open func() (newMount, error)) (*detachedMount, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.running[target]
	switch {
	case m != nil && m.what != what:
		return nil, fmt.Errorf("the kernel still waits for a server to mount %s there", m.what)
	case m == nil:
		m = &detachedMount{what: what, done: make(chan struct{}), opened: newMount{fd: -1}}
		if d.running == nil {
			d.running = map[string]*detachedMount{}
		}
		d.running[target] = m
		go func() {
			m.opened, m.err = open()
			d.mu.Lock()
			defer d.mu.Unlock()
			close(m.done)
			d.drop(target, m)
		}()
	}
	m.wanted++
	return m, nil
}

func (d *detachedMounts) leave(target string, m *detachedMount) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m.wanted--
	d.drop(target, m)
}

// drop closes mounts without waiters whose call has returned. A mount that was not attached is removed when its
// descriptor is closed.
func (d *detachedMounts) drop(target string, m *detachedMount) {
	select {
	case <-m.done:
	default:
		return
	}
	if m.wanted > 0 || d.running[target] != m {
		return
	}
	delete(d.running, target)
	if m.err == nil {
		unix.Close(m.opened.fd)
	}
}

// mountAttributes are the options of a mount, as opposed to those of its file system.
var mountAttributes = map[string]struct{ set, clear uint64 }{
	"ro": {set: unix.MOUNT_ATTR_RDONLY}, "rw": {clear: unix.MOUNT_ATTR_RDONLY},
	"nosuid": {set: unix.MOUNT_ATTR_NOSUID}, "suid": {clear: unix.MOUNT_ATTR_NOSUID},
	"nodev": {set: unix.MOUNT_ATTR_NODEV}, "dev": {clear: unix.MOUNT_ATTR_NODEV},
	"noexec": {set: unix.MOUNT_ATTR_NOEXEC}, "exec": {clear: unix.MOUNT_ATTR_NOEXEC},
	"nodiratime": {set: unix.MOUNT_ATTR_NODIRATIME}, "diratime": {clear: unix.MOUNT_ATTR_NODIRATIME},
	"nosymfollow": {set: unix.MOUNT_ATTR_NOSYMFOLLOW}, "symfollow": {clear: unix.MOUNT_ATTR_NOSYMFOLLOW},
	"noatime":     {set: unix.MOUNT_ATTR_NOATIME, clear: unix.MOUNT_ATTR__ATIME},
	"strictatime": {set: unix.MOUNT_ATTR_STRICTATIME, clear: unix.MOUNT_ATTR__ATIME},
	"relatime":    {clear: unix.MOUNT_ATTR__ATIME}, "atime": {clear: unix.MOUNT_ATTR__ATIME},
	"nostrictatime": {clear: unix.MOUNT_ATTR__ATIME}, "norelatime": {clear: unix.MOUNT_ATTR__ATIME},
}

// attributesOf combines the options that are mount attributes, and returns the other options.
func attributesOf(options []string) (attributes unix.MountAttr, others []string) {
	for _, o := range options {
		a, is := mountAttributes[o]
		if !is {
			others = append(others, o)
			continue
		}
		attributes.Attr_set = attributes.Attr_set&^a.clear | a.set
		attributes.Attr_clr |= a.clear
	}
	attributes.Attr_clr &^= attributes.Attr_set &^ unix.MOUNT_ATTR__ATIME
	return attributes, others
}

// bindAttributes are those of a bind mount.
func bindAttributes(readOnly bool, options []string) (attributes unix.MountAttr, others []string) {
	attributes, others = attributesOf(options)
	if readOnly {
		attributes.Attr_set |= unix.MOUNT_ATTR_RDONLY
		attributes.Attr_clr &^= unix.MOUNT_ATTR_RDONLY
	}
	return attributes, others
}

// BindShared is Bind for a file system on a server. It returns when ctx ends, even if the server does not answer.
func BindShared(ctx context.Context, source, target string, readOnly bool, options []string) error {
	attributes, others := bindAttributes(readOnly, options)
	if len(others) > 0 {
		return fmt.Errorf("binding %s to %s: option %q does not belong to a mount; these do: %v",
			source, target, shorten(others[0]), slices.Sorted(maps.Keys(mountAttributes)))
	}
	what := fmt.Sprintf("%s with attributes %x", source, attributes.Attr_set)
	err := detached.mountAt(ctx, target, what, func() (newMount, error) {
		fd, err := cloneMount(source, attributes)
		return newMount{fd: fd}, err
	}, nil)
	return wrapBind(source, target, err)
}

// newDetached makes a mount of what fsopen has begun, which is visible nowhere yet.
func newDetached(config int, options []string, attributes unix.MountAttr) (fd int, err error) {
	for _, o := range options {
		if key, value, given := strings.Cut(o, "="); given {
			err = unix.FsconfigSetString(config, key, value)
		} else {
			err = unix.FsconfigSetFlag(config, o)
		}
		if err != nil {
			return -1, fmt.Errorf("option %s: %w", o, err)
		}
	}
	if err := unix.FsconfigCreate(config); err != nil {
		return -1, err
	}
	fd, err = unix.Fsmount(config, unix.FSMOUNT_CLOEXEC, int(attributes.Attr_set))
	return fd, os.NewSyscallError("fsmount", err)
}

func cloneMount(source string, attributes unix.MountAttr) (int, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return -1, os.NewSyscallError("open_tree", err)
	}
	if attributes != (unix.MountAttr{}) {
		if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attributes); err != nil {
			unix.Close(fd)
			return -1, os.NewSyscallError("mount_setattr", err)
		}
	}
	return fd, nil
}
