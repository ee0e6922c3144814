//go:build ceph

package rbd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ceph/go-ceph/rados"
	"github.com/ceph/go-ceph/rbd"

	"github.com/holdfast-storage/holdfast/backend"
)

// longestHeld bounds how long a group snapshot makes writers wait.
const longestHeld = 10 * time.Second

// heldLock is the exclusive lock of an image in this process: no client writes to the image, and writers wait. From a
// process that was killed they take the lock when the cluster misses its watch, after 30 s.
//
// To a writer who requests the lock Ceph's library answers that it is never released, and the write would fail with EROFS.
// So a second watcher of the image answers too, that it will be. A client that gets two answers believes neither: it
// requests the lock again within a second, and at once when the release is announced.
type heldLock struct {
	name   string
	image  *rbd.Image
	watch  *rados.Watcher
	unlock func() error // once
	limit  *time.Timer  // nil: not locked yet
	done   sync.WaitGroup
}

// watchLock opens an image, and answers those who request its lock until it is closed.
func (s *session) watchLock(r *record) (*heldLock, error) {
	watch, err := s.ioctx.Watch(headerObject(r.image)) // before the library's, which must never be the only one to answer
	if err != nil {
		return nil, err
	}
	h := &heldLock{name: r.name, watch: watch}
	h.done.Go(func() { h.answer(s.conn.GetInstanceID()) })
	if h.image, err = rbd.OpenImage(s.ioctx, r.name, rbd.NoSnapshot); err != nil {
		return nil, errors.Join(err, h.unwatch())
	}
	return h, nil
}

// lock takes the lock from who has it, who first finishes what is being written.
func (h *heldLock) lock() error {
	if err := h.image.LockAcquire(rbd.LockModeExclusive); err != nil {
		return fmt.Errorf("locking image %s, which its user may have mapped exclusively: %w", h.name, err)
	}
	h.unlock = sync.OnceValue(h.image.LockRelease)
	h.limit = time.AfterFunc(longestHeld, func() { _ = h.unlock() })
	return nil
}

// check fails where the image could be written after it was locked.
func (h *heldLock) check() error {
	if ours, err := h.image.LockIsExclusiveOwner(); err != nil || !ours {
		return errors.Join(fmt.Errorf("%w: image %s could be written between the snapshots: they took more than %s, or its lock was taken away", backend.ErrUnavailable, h.name, longestHeld), err)
	}
	return nil
}

func (h *heldLock) close() error {
	if h.limit != nil {
		h.limit.Stop()
		_ = h.unlock() // or it ends with the image
	}
	return errors.Join(h.image.Close(), h.unwatch())
}

// unwatch ends the answers. A watcher that cannot be deleted, as that of a client that was cut off, has them run on: a
// notification that no one takes would block the library.
func (h *heldLock) unwatch() error {
	err := h.watch.Delete()
	if err == nil {
		h.done.Wait()
	}
	return err
}

// answer runs until the watcher is deleted. Requests of this process itself are for others to answer.
func (h *heldLock) answer(self uint64) {
	events, failures := h.watch.Events(), h.watch.Errors()
	for {
		select {
		case event, open := <-events:
			if !open {
				return
			}
			var says []byte
			if requestsLock(event.Data) && uint64(event.NotifierID) != self {
				says = willRelease
			}
			_ = event.Ack(says) // who is not answered asks again
		case _, open := <-failures: // the library's watcher has failed, too, and with it the lock is lost
			if !open {
				failures = nil
			}
		}
	}
}

// What is notified of an image, and answered, are structures: their version, the oldest that can read it, the length of the
// rest.

// willRelease is the answer to a request for the lock: 0 is success.
var willRelease = []byte{1, 1, 4, 0, 0, 0, 0, 0, 0, 0}

// requestsLock reads the number of what is notified, which comes first.
func requestsLock(notification []byte) bool {
	const begins, length, request = 6, 4, 2
	return len(notification) >= begins+length && binary.LittleEndian.Uint32(notification[begins:]) == request
}
