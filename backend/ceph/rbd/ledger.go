//go:build ceph

package rbd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ceph/go-ceph/rados"
	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/ceph"
)

// ledgerObject holds what is promised: a value for each image in its omap, and their sum as its content. Both change in
// one write that fails if another process has written in between, so that no two can promise the same room.
const ledgerObject = "holdfast.promises"

// state says what is known of an image that room is promised to.
type state string

const (
	building state = "building" // it may be there, or a part of it, and is discarded by who finds it
	complete state = "complete"
	trashed  state = "trashed"  // it can be restored
	aborted  state = "aborted"  // it was not completed, and is removed later
	removing state = "removing" // it cannot be restored; copies of it may still need its content
)

// promise is an entry of the ledger. Its key is the image's name, or, in the trash, trash. and the image's ID.
type promise struct {
	Charge  int64     `json:"charge"`
	State   state     `json:"state"`
	Source  string    `json:"source,omitempty"` // the image that it is copied from, which may have a temporary snapshot
	Deleted time.Time `json:"deleted,omitzero"` // in the trash
}

func trashKey(image string) string { return "trash." + image }

type ledger struct {
	mu    sync.Mutex
	ioctx *rados.IOContext // of its own: it remembers the version of what was last read or written
	// What is known of the object in a version, on which a write insists.
	version uint64 // 0: it must be read
	sum     sum
	charges map[string]int64 // of some entries; 0: there is none

	queueing sync.Mutex
	queue    []*change // which the next goroutine that has mu makes
}

// change replaces entries, and drops those that are nil.
type change struct {
	entries map[string]*promise
	fits    func(promised, more int64) error
	made    bool
	err     error
}

// sum is the content of the object.
type sum struct {
	Version  int   `json:"version"`
	Promised int64 `json:"promised"`
}

func openLedger(ioctx *rados.IOContext) (*ledger, error) {
	l := &ledger{ioctx: ioctx}
	op := rados.CreateWriteOp()
	defer op.Release()
	op.Create(rados.CreateExclusive)
	op.WriteFull(encode(sum{Version: version}))
	if err := op.Operate(ioctx, ledgerObject, rados.OperationNoFlag); err != nil && !isErrno(err, unix.EEXIST) {
		return nil, err
	}
	return l, nil
}

func encode(v any) []byte {
	text, _ := json.Marshal(v) // what is passed has only types that can be written
	return text
}

// isErrno says whether an error of go-ceph has a number.
func isErrno(err error, n unix.Errno) bool { return err != nil && ceph.ErrnoOf(err) == n }

// mostSum is far more than the content of the object has.
const mostSum = 4096

// mostKnown bounds the charges that are remembered.
const mostKnown = 1000

// read returns the entries of keys, and remembers what they are charged; l.mu is held.
func (l *ledger) read(keys ...string) (map[string]promise, error) {
	op := rados.CreateReadOp()
	defer op.Release()
	content := make([]byte, mostSum)
	read := op.Read(0, content)
	step := op.GetOmapValuesByKeys(keys)
	if err := op.Operate(l.ioctx, ledgerObject, rados.OperationNoFlag); err != nil {
		return nil, err
	}
	at, err := l.ioctx.GetLastVersion()
	if err != nil {
		return nil, err
	}
	content = bytes.TrimSpace(content[:read.BytesRead])
	var s sum
	if err := json.Unmarshal(content, &s); err != nil || s.Version != version {
		return nil, fmt.Errorf("%w: object %s says %s, which this program cannot read (%v)", backend.ErrUnavailable, ledgerObject, backend.Quote(string(content)), err)
	}
	values, err := valuesOf(step)
	if err != nil {
		return nil, err
	}
	found := map[string]promise{}
	for key, value := range values {
		var p promise
		if err := json.Unmarshal(value, &p); err != nil {
			return nil, fmt.Errorf("%w: entry %s of object %s is damaged: %w", backend.ErrUnavailable, key, ledgerObject, err)
		}
		found[key] = p
	}
	if at != l.version || len(l.charges) > mostKnown {
		l.version, l.sum, l.charges = at, s, map[string]int64{}
	}
	for _, key := range keys {
		l.charges[key] = found[key].Charge
	}
	return found, nil
}

// valuesOf returns what an object has for keys.
func valuesOf(step *rados.ReadOpOmapGetValsByKeysStep) (map[string][]byte, error) {
	values := map[string][]byte{}
	for {
		kv, err := step.Next()
		if err != nil || kv == nil {
			return values, err
		}
		values[kv.Key] = kv.Value
	}
}

// change replaces entries, and drops those that are nil. fits decides, by what is promised otherwise and how much is
// requested; nil: it fits. The changes that wait while another is written are written together.
func (l *ledger) change(entries map[string]*promise, fits func(promised, more int64) error) error {
	c := &change{entries: entries, fits: fits}
	l.queueing.Lock()
	l.queue = append(l.queue, c)
	l.queueing.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !c.made {
		l.queueing.Lock()
		all := l.queue
		l.queue = nil
		l.queueing.Unlock()
		l.make(all)
	}
	return c.err
}

// make makes changes in one write, but for those that do not fit; l.mu is held.
func (l *ledger) make(all []*change) {
	var keys []string
	for _, c := range all {
		c.made = true
		keys = slices.AppendSeq(keys, maps.Keys(c.entries))
	}
	for {
		err := l.know(keys)
		if err == nil {
			entries := map[string]*promise{}
			for _, c := range all {
				c.err = l.apply(c, entries)
			}
			if len(entries) > 0 {
				err = l.write(entries)
			}
		}
		if outdated(err) {
			continue
		}
		for _, c := range all {
			if err != nil { // what did not fit, did not beside changes that are not made
				c.err = err
			}
		}
		return
	}
}

// know reads what is not known of keys.
func (l *ledger) know(keys []string) (err error) {
	if l.version == 0 || slices.ContainsFunc(keys, func(key string) bool { _, is := l.charges[key]; return !is }) {
		_, err = l.read(keys...)
	}
	return err
}

// apply adds a change to entries, which are to be written, if it fits.
func (l *ledger) apply(c *change, entries map[string]*promise) error {
	var more int64
	for key, p := range c.entries {
		more += p.charge() - l.charges[key]
	}
	if c.fits != nil {
		if err := c.fits(l.sum.Promised, more); err != nil {
			return err
		}
	}
	l.sum.Promised = max(0, l.sum.Promised+more)
	for key, p := range c.entries {
		entries[key], l.charges[key] = p, p.charge()
	}
	return nil
}

func (p *promise) charge() int64 {
	if p == nil {
		return 0
	}
	return p.Charge
}

// outdated says whether another process has written what was to be written.
func outdated(err error) bool { return isErrno(err, unix.ERANGE) || isErrno(err, unix.EOVERFLOW) }

// write writes the sum, and replaces entries, unless another process has written; l.mu is held.
func (l *ledger) write(entries map[string]*promise) error {
	op := rados.CreateWriteOp()
	defer op.Release()
	op.AssertVersion(l.version)
	op.WriteFull(encode(l.sum))
	for key, p := range entries {
		if p == nil {
			op.RmOmapKeys([]string{key})
		} else {
			op.SetOmap(map[string][]byte{key: encode(p)})
		}
	}
	l.version = 0 // where it fails, all must be read
	err := op.Operate(l.ioctx, ledgerObject, rados.OperationNoFlag)
	if err == nil {
		l.version, err = l.ioctx.GetLastVersion()
	}
	return err
}

// promised is the sum of all entries.
func (l *ledger) promised() (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.read("none")
	return l.sum.Promised, err
}

// all returns all entries.
func (l *ledger) all() (map[string]promise, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.list()
}

func (l *ledger) list() (map[string]promise, error) {
	const page = 1000
	values, err := l.ioctx.GetAllOmapValues(ledgerObject, "", "", page)
	if err != nil {
		return nil, err
	}
	found := map[string]promise{}
	for key, value := range values {
		var p promise
		if err := json.Unmarshal(value, &p); err != nil {
			return nil, errors.Join(fmt.Errorf("%w: entry %s of object %s is damaged; remove it with rados rmomapkey: it is written again", backend.ErrUnavailable, key, ledgerObject), err)
		}
		found[key] = p
	}
	return found, nil
}

// sumUp makes the sum that of all entries.
func (l *ledger) sumUp() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		if _, err := l.read("none"); err != nil {
			return err
		}
		entries, err := l.list()
		if err != nil {
			return err
		}
		l.sum.Promised = 0
		for _, p := range entries {
			l.sum.Promised += p.Charge
		}
		if err := l.write(nil); !outdated(err) {
			return err
		}
	}
}

// get returns the entries of keys.
func (l *ledger) get(keys ...string) (map[string]promise, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.read(keys...)
}
