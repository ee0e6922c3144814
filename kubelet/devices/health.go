package devices

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// health is whether loop devices can be created. It notifies waiters of changes.
type health struct {
	control string // /dev/loop-control or its like, which creates loop devices

	mu      sync.Mutex
	healthy bool
	changed chan struct{} // closed at the next change
}

func newHealth(control string) *health {
	h := &health{control: control, changed: make(chan struct{})}
	h.healthy = h.reachable() == nil
	return h
}

func (h *health) reachable() error {
	f, err := os.OpenFile(h.control, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

func (h *health) now() (healthy bool, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.healthy, h.changed
}

func (h *health) set(healthy bool) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if healthy == h.healthy {
		return false
	}
	h.healthy = healthy
	close(h.changed)
	h.changed = make(chan struct{})
	return true
}

// watch updates the health until ctx ends, on events of inotify in the directory of the control device.
func (h *health) watch(ctx context.Context, log *slog.Logger) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return err
	}
	events := os.NewFile(uintptr(fd), "inotify")
	defer events.Close()
	if _, err := unix.InotifyAddWatch(fd, filepath.Dir(h.control), unix.IN_CREATE|unix.IN_DELETE|unix.IN_MOVE|unix.IN_ATTRIB|unix.IN_ONLYDIR); err != nil {
		return err
	}
	stopped := context.AfterFunc(ctx, func() { events.Close() })
	defer stopped()
	buffer := make([]byte, 64<<10)
	for {
		err := h.reachable()
		if h.set(err == nil) {
			log.Warn("the health of loop devices has changed", "healthy", err == nil, "error", err)
		}
		for relevant := false; !relevant; {
			n, err := events.Read(buffer)
			if errors.Is(err, os.ErrClosed) {
				return nil
			}
			if err != nil {
				return err
			}
			relevant = concerns(buffer[:n], filepath.Base(h.control))
		}
	}
}

// concerns returns whether an inotify event is about a file of that name, or says that events were lost.
func concerns(events []byte, name string) bool {
	for len(events) >= unix.SizeofInotifyEvent {
		e := (*unix.InotifyEvent)(unsafe.Pointer(&events[0]))
		end := min(len(events), unix.SizeofInotifyEvent+int(e.Len))
		of, _, _ := bytes.Cut(events[unix.SizeofInotifyEvent:end], []byte{0})
		if string(of) == name || e.Mask&unix.IN_Q_OVERFLOW != 0 {
			return true
		}
		events = events[end:]
	}
	return false
}
