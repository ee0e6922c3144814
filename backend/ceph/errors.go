//go:build ceph

package ceph

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ceph/go-ceph/rados"
	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
)

// Error is an error of Ceph's libraries. It is its errno, for errors.Is, and the sentinel that stands for it where nothing
// else is said: what is not found, or exists, is said by who looked for it.
type Error struct {
	Errno    syscall.Errno
	sentinel error
	message  string
}

func (e *Error) Error() string   { return e.sentinel.Error() + ": " + e.message }
func (e *Error) Unwrap() []error { return []error{e.sentinel, e.Errno} }

// ErrnoOf finds the number of an error of go-ceph; 0: it has none.
func ErrnoOf(err error) syscall.Errno {
	if op, ok := errors.AsType[rados.OperationError](err); ok {
		if op.OpError != nil {
			return ErrnoOf(op.OpError)
		}
		for _, i := range slices.Sorted(maps.Keys(op.StepErrors)) {
			if n := ErrnoOf(op.StepErrors[i]); n != 0 {
				return n
			}
		}
	}
	var coded interface{ ErrorCode() int }
	if errors.As(err, &coded) {
		n := coded.ErrorCode()
		return syscall.Errno(max(n, -n))
	}
	return 0
}

// translate gives an error of go-ceph its sentinel. Any other error stays what it is.
func (c *Cluster) translate(err error) error {
	n := ErrnoOf(err)
	if err == nil || n == 0 || errors.As(err, new(*Error)) {
		return err
	}
	e := &Error{Errno: n, sentinel: backend.ErrUnavailable, message: err.Error()}
	switch n {
	case unix.ENOSPC, unix.EDQUOT:
		e.sentinel = backend.ErrExhausted
		e.message = "the cluster or the pool is full: " + err.Error()
	case unix.ETIMEDOUT:
		e.message = "Ceph has not answered in time: " + c.reason()
	case unix.ESHUTDOWN:
		e.message = "the cluster has cut this client off (`ceph osd blocklist ls` lists it): another process has taken its place, or an administrator did so"
	case unix.EPERM, unix.EACCES:
		e.message = fmt.Sprintf("client.%s may not do this, or its key is wrong; `ceph auth get client.%s` prints what it may: %v", c.config.User, c.config.User, err)
	}
	return e
}

// stalled is the error of a call that does not return.
func (c *Cluster) stalled(r *running) error {
	return fmt.Errorf("%w: %s and continues: %s", backend.ErrUnavailable, r, c.reason())
}

// askedFor is how long the monitors may take to say what is wrong.
const askedFor = 2 * time.Second

// reason says why a cluster does not answer, as far as its monitors know.
func (c *Cluster) reason() string {
	if c.of != nil {
		return c.of.reason()
	}
	monitors := strings.Join(c.config.Monitors, ", ")
	none := fmt.Sprintf("none of the monitors %s answers: they have no quorum, or cannot be reached", monitors)
	c.mu.Lock()
	conn := c.conn
	c.mu.Unlock()
	if conn == nil {
		return none
	}
	answer := make(chan string, 1)
	go func() {
		text, _, err := conn.MonCommand([]byte(`{"prefix":"health","format":"json"}`))
		if err != nil {
			answer <- none
			return
		}
		answer <- summary(text)
	}()
	late := time.NewTimer(min(askedFor, c.config.Patience))
	defer late.Stop()
	select {
	case is := <-answer:
		return is
	case <-late.C:
		return none
	}
}

func summary(text []byte) string {
	var health struct {
		Status string
		Checks map[string]struct{ Summary struct{ Message string } }
	}
	if err := json.Unmarshal(text, &health); err != nil {
		return "the monitors answer what cannot be read: " + err.Error()
	}
	parts := []string{}
	for _, name := range slices.Sorted(maps.Keys(health.Checks)) {
		parts = append(parts, health.Checks[name].Summary.Message)
	}
	return strings.TrimSuffix(fmt.Sprintf("the cluster is %s: %s", health.Status, strings.Join(parts, "; ")), ": ")
}
