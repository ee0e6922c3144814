package nodeops

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Of the options of a mapping none is used that would let the kernel give up or refuse:
//
//   - osd_request_timeout, lock_timeout: a disk that answers with an error after a while breaks the file system on it, of
//     which every write that it has promised would be lost. One that waits for its cluster goes on where it was, as an NFS
//     volume does. What the kernel then waits for here, callers do not: it has a thread of its own.
//   - exclusive: the lock of the image would never be handed over, also not to a client that grows it or makes a snapshot of it.
//     Without it, the client that writes takes the lock, from a client that is dead after having it blocklisted. That two
//     hosts do not use an image at once is not prevented by the lock: it goes back and forth between clients that live.
//   - lock_on_read: a client that has lost the lock for good is blocklisted, and reads nothing either.

// rbdMaps are the mappings under way, each with a thread that may hang in the kernel for ever: none gets a second one. One
// that succeeds when no caller waits for it any more is undone.
type rbdMaps struct {
	onThread func(*RBD) (device *RBDDevice, undo func() error, err error)

	mu      sync.Mutex
	running map[string]*rbdMap // by what is mapped
}

type rbdMap struct {
	done   chan struct{}
	device *RBDDevice
	err    error
	wanted int // callers who wait
}

var mapping = rbdMaps{onThread: (*RBD).mapOnThread, running: map[string]*rbdMap{}}

var errAbandoned = errors.New("an earlier attempt succeeded when no caller waited for it any more, and is undone; retry")

// MapRBD makes a device of an image, or returns the device that shows it already: two would be two clients of it. It
// needs nothing of the host but a kernel with the module rbd, which is a CephClientError where it has not, and returns
// when ctx ends. The key of the user is seen by the kernel alone.
func MapRBD(ctx context.Context, r RBD) (*RBDDevice, error) {
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("mapping %s: %w", &r, err)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("mapping %s: %w", &r, err)
	}
	m := mapping.join(&r)
	select {
	case <-m.done:
	case <-ctx.Done():
		mapping.leave(m)
		return nil, fmt.Errorf("mapping %s: the Ceph cluster %s at %s does not answer, and the kernel still waits for it: %w", &r, r.Cluster.FSID, r.Cluster.at(), ctx.Err())
	}
	if m.err != nil {
		return nil, fmt.Errorf("mapping %s of the Ceph cluster %s: %w", &r, r.Cluster.FSID, m.err)
	}
	return m.device, nil
}

func (all *rbdMaps) join(r *RBD) *rbdMap {
	// Who asks another way waits for the lock of the image, and not for what the first way comes to.
	key := fmt.Sprintf("%s %s %s %q %t %s %s %t", r.Cluster.FSID, r, r.ImageID, r.Cluster.Monitors, r.Cluster.Secure, r.Cluster.User, r.Cluster.Namespaces, r.ReadOnly)
	all.mu.Lock()
	defer all.mu.Unlock()
	m := all.running[key]
	if m == nil {
		m = &rbdMap{done: make(chan struct{})}
		all.running[key] = m
		go all.run(key, m, *r)
	}
	m.wanted++
	return m
}

func (all *rbdMaps) leave(m *rbdMap) {
	all.mu.Lock()
	defer all.mu.Unlock()
	m.wanted--
}

// run maps on a thread of its own, which has the key and is in the network that is requested, and ends with it. What is undone
// still runs until then, so that no caller is given a device that goes.
func (all *rbdMaps) run(key string, m *rbdMap, r RBD) {
	device, undo, err := all.onThread(&r)
	all.mu.Lock()
	defer all.mu.Unlock()
	if undo != nil && m.wanted == 0 {
		all.mu.Unlock()
		device, err = nil, errors.Join(errAbandoned, undo())
		all.mu.Lock()
	}
	m.device, m.err = device, err
	delete(all.running, key)
	close(m.done)
}

// mapOnThread returns the device of an image, and what unmaps it again if it was not mapped before.
func (r *RBD) mapOnThread() (device *RBDDevice, undo func() error, err error) {
	if err := CheckRBDClient(); err != nil {
		return nil, nil, err
	}
	unlock, err := r.lock()
	if err != nil {
		return nil, nil, err
	}
	defer unlock()
	devices, err := r.Devices()
	switch {
	case err != nil:
		return nil, nil, err
	case len(devices) > 1:
		return nil, nil, fmt.Errorf("it is mapped more than once, as %s and %s; find out who has done so and unmap one of them", devices[0].Path, devices[1].Path)
	case len(devices) == 1 && devices[0].ReadOnly && !r.readOnly():
		return nil, nil, fmt.Errorf("it is mapped read-only as %s; stop its users first", devices[0].Path)
	case len(devices) == 1:
		return &devices[0], nil, nil
	}
	if err := enterNamespaces(r.Cluster.Namespaces, "net"); err != nil {
		return nil, nil, err
	}
	if err := r.Cluster.Key.addToThread(); err != nil {
		return nil, nil, err
	}
	line, err := r.add()
	if err != nil {
		return nil, nil, err
	}
	if device, err = r.added(line); err != nil {
		return nil, nil, err
	}
	return device, device.unmap, nil
}

func (r *RBD) readOnly() bool { return r.ReadOnly || r.Snapshot != "" }

// lock keeps other processes of Holdfast that map or unmap the same image away. The file that all of them write to serves
// as the place, and a hash of the image as the byte.
func (r *RBD) lock() (unlock func(), err error) {
	return lockImage(r.Cluster.FSID + " " + imageSpec(r.Pool, r.Namespace, r.Image, r.Snapshot))
}

func lockImage(image string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(rbdBus, "add_single_major"), os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	sum := fnv.New64a()
	_, _ = io.WriteString(sum, image) // never fails
	byteOf := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: int64(sum.Sum64() >> 2), Len: 1}
	err = uninterrupted(func() error { return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLKW, &byteOf) })
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("locking it: %w", err)
	}
	return func() {
		byteOf.Type = unix.F_UNLCK // a command that is starting has a copy of the file until its exec
		_ = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &byteOf)
		f.Close()
	}, nil
}

// add has the kernel map. The line has no secret: the kernel shows it.
func (r *RBD) add() (line string, err error) {
	addresses, mode, err := r.Cluster.messengers()
	if err != nil {
		return "", err
	}
	options := r.Cluster.options(mode)
	if r.Namespace != "" {
		options = append(options, "_pool_ns="+r.Namespace)
	}
	if r.readOnly() {
		options = append(options, "read_only")
	}
	words := []string{strings.Join(addresses, ","), strings.Join(options, ","), r.Pool, r.Image}
	if r.Snapshot != "" {
		words = append(words, r.Snapshot)
	} else {
		words = append(words, noSnapshot)
	}
	f, err := os.OpenFile(filepath.Join(rbdBus, "add_single_major"), os.O_WRONLY, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	line = strings.Join(words, " ")
	if err := uninterrupted(func() error { _, err := unix.Write(int(f.Fd()), []byte(line)); return err }); err != nil {
		return "", r.explain(err)
	}
	return line, nil
}

// explain says what the kernel's number means here; it says more only in its log.
func (r *RBD) explain(err error) error {
	c := &r.Cluster
	switch {
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("it has no such image, pool or namespace: %w", err)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.EKEYREJECTED):
		return fmt.Errorf("the cluster refuses user %s: its key is wrong, or its capabilities do not allow this image; it needs mon 'profile rbd' and osd 'profile rbd' of the pool, and this process the capability SYS_ADMIN: %w", c.User, err)
	case errors.Is(err, unix.ETIMEDOUT):
		return fmt.Errorf("none of its monitors answers at %s: %w", c.at(), err)
	case errors.Is(err, unix.ENXIO):
		return fmt.Errorf("the image has features that this kernel does not know, which its log names; rbd feature disable takes them away: %w", err)
	case errors.Is(err, unix.EINVAL):
		return fmt.Errorf("the kernel does not take the options, of which its log names one; Linux 5.12 or later is needed: %w", err)
	}
	return fmt.Errorf("%w; the kernel's log says more", err)
}

// added finds the device that a line has just made, and makes sure that it shows what it should. The kernel maps what the
// monitors have, whatever cluster they should be of.
func (r *RBD) added(line string) (*RBDDevice, error) {
	all, err := RBDDevices()
	if err != nil {
		return nil, err
	}
	for _, d := range slices.Backward(all) { // others are older
		if attribute(filepath.Join(rbdBus, "devices", d.id), "config_info") != line {
			continue
		}
		is, err := r.shownBy(&d)
		switch {
		case err != nil:
		case !is:
			err = fmt.Errorf("what answers at %s is another cluster, with the fsid %s", r.Cluster.at(), d.FSID)
		case DeviceNumber(d.Path) != d.Number:
			err = fmt.Errorf("the kernel has made device %s, and %s is not that; is /dev that of the host", d.Number, d.Path)
		default:
			return &d, nil
		}
		return nil, errors.Join(err, d.remove())
	}
	return nil, errors.New("the kernel has mapped it, and shows no device of it")
}
