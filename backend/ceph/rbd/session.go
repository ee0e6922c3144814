//go:build ceph

package rbd

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/ceph/go-ceph/rados"
	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/ceph"
)

// lockObject is locked by the process that serves the pool.
const (
	lockObject = "holdfast.lock"
	lockName   = "holdfast"
)

// session is the pool in the hands of this process. It ends when another process takes the pool: then the cluster refuses
// all that the connection still asks for.
type session struct {
	config ceph.Config
	conn   *rados.Conn
	ioctx  *rados.IOContext
	ledger *ledger
	cookie string
	watch  *rados.Watcher
	log    *slog.Logger

	measuring sync.Mutex
	measured  time.Time
	usage     ceph.Usage
}

// session returns the pool, and takes it where this process does not have it.
func (b *Backend) session(ctx context.Context) (*session, error) {
	if s := b.current.Load(); s != nil {
		return s, nil
	}
	return ceph.Do(ctx, b.cluster, &b.ops, "pool/"+backend.ID(b.Name), "opening", func(ctx context.Context) (*session, error) {
		if s := b.current.Load(); s != nil {
			return s, nil
		}
		if b.closed.Load() {
			return nil, fmt.Errorf("%w: pool %s was closed", backend.ErrUnavailable, b.Name)
		}
		return ceph.Call(ctx, b.cluster, "opening pool "+b.Name, b.openPool)
	})
}

func (b *Backend) openPool(conn *rados.Conn) (*session, error) {
	s, err := b.take(conn)
	if err == nil && !b.peeks {
		if err = b.recover(s); err != nil {
			err = errors.Join(err, s.release())
		}
	}
	if isErrno(err, unix.ETIMEDOUT) || isErrno(err, unix.ESHUTDOWN) {
		b.cluster.Forget(conn) // one that was made just before an outage may never learn where the disks are by now
	}
	if err != nil {
		return nil, err
	}
	b.current.Store(s)
	if !b.peeks {
		go b.answer(s)
	}
	return s, nil
}

// take opens the pool and its lock.
func (b *Backend) take(conn *rados.Conn) (_ *session, err error) {
	s := &session{config: b.cluster.Config(), conn: conn, cookie: b.cookie, log: b.log}
	if s.ioctx, err = s.open(s.config.Pool); err != nil {
		return nil, err
	}
	if !b.peeks {
		if err := s.lock(); err != nil {
			s.ioctx.Destroy()
			return nil, err
		}
	}
	own, err := s.open(s.config.Pool)
	if err == nil {
		s.ledger, err = b.openLedger(own)
	}
	if err != nil {
		return nil, errors.Join(err, s.release())
	}
	return s, nil
}

func (s *session) open(pool string) (*rados.IOContext, error) {
	ioctx, err := s.conn.OpenIOContext(pool)
	if isErrno(err, unix.ENOENT) {
		return nil, fmt.Errorf("%w: the cluster has no pool %s; `ceph osd pool create` makes it", backend.ErrUnavailable, pool)
	}
	if err == nil {
		ioctx.SetNamespace(s.config.Namespace)
	}
	return ioctx, err
}

// openLedger makes the ledger of a new pool, unless the pool is only read.
func (b *Backend) openLedger(ioctx *rados.IOContext) (*ledger, error) {
	if !b.peeks {
		return openLedger(ioctx)
	}
	_, err := ioctx.Stat(ledgerObject)
	if absent(err) {
		err = fmt.Errorf("%w: there is no pool of Holdfast in %s/%s of the Ceph cluster", backend.ErrNotFound, b.cluster.Config().Pool, b.cluster.Config().Namespace)
	}
	if err != nil {
		ioctx.Destroy()
		return nil, err
	}
	return &ledger{ioctx: ioctx}, nil
}

// answers is how long the process that has the pool may take to say so before it is cut off.
const answers = 4 * time.Second

// lock takes the lock of the pool. Its holder is asked first: one that does not answer is cut off from the cluster before
// the lock is taken from it, so that nothing of what it still does arrives.
func (s *session) lock() error {
	host, _ := os.Hostname() // it is for people
	for {
		code, err := s.ioctx.LockExclusive(lockObject, lockName, s.cookie, host, 0, nil)
		if err != nil {
			return err
		}
		if code != -int(unix.EBUSY) {
			break
		}
		held, err := s.ioctx.ListLockers(lockObject, lockName)
		if absent(err) || err == nil && held.NumLockers == 0 {
			continue
		}
		if err != nil {
			return err
		}
		acks, _, err := s.ioctx.NotifyWithTimeout(lockObject, nil, answers)
		if len(acks) > 0 {
			return fmt.Errorf("%w: pool %s is served by another process, at %s; stop that one", backend.ErrUnavailable, s.config.Pool, held.Addrs[0])
		}
		if err != nil && !isErrno(err, unix.ETIMEDOUT) && !absent(err) {
			return err
		}
		if err := s.cutOff(held); err != nil {
			return err
		}
	}
	watch, err := s.ioctx.Watch(lockObject)
	if err != nil {
		_, unlocked := s.ioctx.Unlock(lockObject, lockName, s.cookie)
		return errors.Join(err, unlocked)
	}
	s.watch = watch
	return nil
}

func (s *session) cutOff(held *rados.LockInfo) error {
	const day = "86400.0" // a number with a point, or Ceph refuses it
	for i := range held.NumLockers {
		s.log.Warn("the process that had the pool does not answer and is cut off", "address", held.Addrs[i])
		command, err := json.Marshal(map[string]any{"prefix": "osd blocklist", "blocklistop": "add", "addr": held.Addrs[i], "expire": json.RawMessage(day)})
		if err != nil {
			return err
		}
		if _, said, err := s.conn.MonCommand(command); err != nil {
			return fmt.Errorf("cutting off %s: %w (%s)", held.Addrs[i], err, said)
		}
		if err := s.conn.WaitForLatestOSDMap(); err != nil {
			return err
		}
		if _, err := s.ioctx.BreakLock(lockObject, lockName, held.Clients[i], held.Cookies[i]); err != nil {
			return err
		}
	}
	return nil
}

// answer acknowledges, until the session ends, each notification of a process that wants the pool.
func (b *Backend) answer(s *session) {
	for {
		select {
		case event, open := <-s.watch.Events():
			if !open {
				return
			}
			if err := event.Ack(nil); err != nil {
				b.log.Warn("who wants the pool cannot be answered", "error", err)
			}
		case err, open := <-s.watch.Errors():
			if !open {
				return
			}
			b.lose(s, err)
		}
	}
}

// lose ends a session that the cluster has ended. The next call takes the pool again, if no other process has it.
func (b *Backend) lose(s *session, err error) {
	if b.current.CompareAndSwap(s, nil) {
		b.log.Warn("the pool must be taken again", "error", err)
		if s.watch != nil {
			go func() { _ = s.watch.Delete() }() // it may wait for the cluster
		}
		b.cluster.Forget(s.conn)
	}
}

func (s *session) release() error {
	if s.watch == nil { // it was only read
		s.ioctx.Destroy()
		if s.ledger != nil {
			s.ledger.ioctx.Destroy()
		}
		return nil
	}
	err := s.watch.Delete()
	_, unlocked := s.ioctx.Unlock(lockObject, lockName, s.cookie)
	s.ioctx.Destroy()
	if s.ledger != nil {
		s.ledger.ioctx.Destroy()
	}
	return errors.Join(err, unlocked)
}

func newCookie() string { return rand.Text() }

// call runs f with the pool.
func call[T any](ctx context.Context, b *Backend, what string, f func(*session) (T, error)) (T, error) {
	var zero T
	s, err := b.session(ctx)
	if err != nil {
		return zero, err
	}
	value, err := ceph.Call(ctx, b.cluster, what, func(*rados.Conn) (T, error) { return f(s) })
	if errors.Is(err, unix.ESHUTDOWN) {
		b.lose(s, err)
	}
	if err != nil {
		return zero, fmt.Errorf("pool %s: %w", b.Name, err)
	}
	return value, nil
}
