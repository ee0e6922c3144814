//go:build ceph

package rbd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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
	ioctx *rados.IOContext // of its own: it remembers the version of what was last read
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

// read returns the sum and the entries of keys, and sets the version on which a write can insist; l.mu is held.
func (l *ledger) read(keys ...string) (s sum, found map[string]promise, at uint64, err error) {
	op := rados.CreateReadOp()
	defer op.Release()
	content := make([]byte, mostSum)
	read := op.Read(0, content)
	values := op.GetOmapValuesByKeys(keys)
	if err := op.Operate(l.ioctx, ledgerObject, rados.OperationNoFlag); err != nil {
		return s, nil, 0, err
	}
	if at, err = l.ioctx.GetLastVersion(); err != nil {
		return s, nil, 0, err
	}
	content = bytes.TrimSpace(content[:read.BytesRead])
	if err := json.Unmarshal(content, &s); err != nil || s.Version != version {
		return s, nil, 0, fmt.Errorf("%w: object %s says %s, which this program cannot read (%v)", backend.ErrUnavailable, ledgerObject, backend.Quote(string(content)), err)
	}
	found = map[string]promise{}
	for {
		kv, err := values.Next()
		if err != nil {
			return s, nil, 0, err
		}
		if kv == nil {
			return s, found, at, nil
		}
		var p promise
		if err := json.Unmarshal(kv.Value, &p); err != nil {
			return s, nil, 0, fmt.Errorf("%w: entry %s of object %s is damaged: %w", backend.ErrUnavailable, kv.Key, ledgerObject, err)
		}
		found[kv.Key] = p
	}
}

// change replaces entries, and drops those that are nil. fits decides, by what is promised otherwise and how much is
// requested; nil: it fits.
func (l *ledger) change(entries map[string]*promise, fits func(promised, more int64) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var keys []string
	for key := range entries {
		keys = append(keys, key)
	}
	for {
		s, before, at, err := l.read(keys...)
		if err != nil {
			return err
		}
		var more int64
		set, gone := map[string][]byte{}, []string{}
		for key, p := range entries {
			more -= before[key].Charge
			if p == nil {
				gone = append(gone, key)
				continue
			}
			more += p.Charge
			set[key] = encode(p)
		}
		if fits != nil {
			if err := fits(s.Promised, more); err != nil {
				return err
			}
		}
		err = l.write(sum{Version: version, Promised: max(0, s.Promised+more)}, set, gone, at)
		if err == nil || !isErrno(err, unix.ERANGE) && !isErrno(err, unix.EOVERFLOW) {
			return err
		}
	}
}

func (l *ledger) write(s sum, set map[string][]byte, gone []string, at uint64) error {
	op := rados.CreateWriteOp()
	defer op.Release()
	op.AssertVersion(at)
	op.WriteFull(encode(s))
	if len(set) > 0 {
		op.SetOmap(set)
	}
	if len(gone) > 0 {
		op.RmOmapKeys(gone)
	}
	return op.Operate(l.ioctx, ledgerObject, rados.OperationNoFlag)
}

// promised is the sum of all entries.
func (l *ledger) promised() (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, _, _, err := l.read("none")
	return s.Promised, err
}

// all returns all entries.
func (l *ledger) all() (map[string]promise, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
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
	for {
		l.mu.Lock()
		_, _, at, err := l.read("none")
		l.mu.Unlock()
		if err != nil {
			return err
		}
		entries, err := l.all()
		if err != nil {
			return err
		}
		s := sum{Version: version}
		for _, p := range entries {
			s.Promised += p.Charge
		}
		l.mu.Lock()
		err = l.write(s, nil, nil, at)
		l.mu.Unlock()
		if err == nil || !isErrno(err, unix.ERANGE) && !isErrno(err, unix.EOVERFLOW) {
			return err
		}
	}
}

// get returns the entries of keys.
func (l *ledger) get(keys ...string) (map[string]promise, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, found, _, err := l.read(keys...)
	return found, err
}
