package export

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/holdfast-storage/holdfast/backend"
)

// mostIDs is how many exports there can be: 0 is not an ID of theirs.
const mostIDs = 1<<16 - 1

// identity is by what clients know an export. Their handles hold it, so it stays as long as the volume does.
type identity struct {
	ID         uint16 `json:"id"`
	Filesystem string `json:"filesystem"`
}

// book is what the ledger keeps on disk.
type book struct {
	Generation uint64 `json:"generation"`
	// Next was never given out, like all above it. Freed are the IDs that were, in the order in which they became free:
	// a client may hold a handle of the last ones still.
	Next    int                     `json:"next"`
	Freed   []uint16                `json:"freed,omitempty"`
	Exports map[backend.ID]identity `json:"exports"`
}

// ledger gives identities to volumes and never forgets one. An ID that was in use is given out again only when all
// others were, the one that has been free for the longest first.
type ledger struct {
	files files
	most  int

	mu       sync.Mutex
	book     book
	reserved map[backend.ID]bool // volumes that are being made
}

// openLedger reads what is in dir. A missing ledger is created only where there are no volumes.
func openLedger(dir string, most int, volumes bool, log *slog.Logger) (*ledger, error) {
	l := &ledger{files: files{dir}, most: most, reserved: map[backend.ID]bool{}}
	found, err := l.files.read(log)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	case found != nil:
		l.book = *found
		return l, nil
	case volumes:
		return nil, fmt.Errorf("%w: there are volumes, but no file %s that says under which IDs clients know them: put it back from a backup of the server's volume; or, when no client has any of them mounted, write %s into it and start again",
			backend.ErrUnavailable, l.files.main(), blank)
	}
	l.book = book{Next: 1, Exports: map[backend.ID]identity{}}
	if err := l.files.write(&l.book); err != nil {
		return nil, fmt.Errorf("%w: creating the list of exports: %w", backend.ErrUnavailable, err)
	}
	return l, nil
}

func (l *ledger) find(id backend.ID) (identity, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known, ok := l.book.Exports[id]
	return known, ok
}

// ids lists the volumes that have an identity.
func (l *ledger) ids() []backend.ID {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.book.Exports))
}

// full says that no other volume can be exported; l.mu is held.
func (l *ledger) full() bool {
	more := 0
	for id := range l.reserved {
		if _, known := l.book.Exports[id]; !known {
			more++
		}
	}
	return len(l.book.Exports)+more >= l.most
}

// isFull says that no other volume can be exported.
func (l *ledger) isFull() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.full()
}

// reserve keeps a place for a volume, so that none is made that could not be exported.
func (l *ledger) reserve(id backend.ID) (release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.book.Exports[id]; !known && !l.reserved[id] {
		if l.full() {
			return nil, fmt.Errorf("%w: volume %s: this server exports %d volumes, with those being created, and may export %d; delete some, raise maxExports of the NFSServer, which also lends it loop devices for more images, or use another server",
				backend.ErrExhausted, id, len(l.book.Exports)+len(l.reserved), l.most)
		}
		l.reserved[id] = true
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.reserved, id)
	}, nil
}

// assign gives a volume its identity; one that has one keeps it.
func (l *ledger) assign(v *backend.Volume) (identity, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, ok := l.book.Exports[v.ID]; ok {
		return known, nil
	}
	next := l.draft()
	made := identity{Filesystem: l.filesystem(v)}
	switch {
	case next.Next <= mostIDs:
		made.ID = uint16(next.Next) //nolint:gosec // the line above bounds it
		next.Next++
	case len(next.Freed) > 0:
		made.ID, next.Freed = next.Freed[0], next.Freed[1:]
	default:
		return identity{}, fmt.Errorf("%w: all %d export IDs are in use; use another server", backend.ErrExhausted, mostIDs)
	}
	next.Exports[v.ID] = made
	return made, l.commit(next)
}

// retire ends the identity of a volume that is gone.
func (l *ledger) retire(id backend.ID) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	gone, ok := l.book.Exports[id]
	if !ok {
		return nil
	}
	next := l.draft()
	delete(next.Exports, id)
	next.Freed = append(next.Freed, gone.ID)
	return l.commit(next)
}

// draft is a copy of the book that may be changed; l.mu is held.
func (l *ledger) draft() *book {
	next := l.book
	next.Exports, next.Freed = maps.Clone(l.book.Exports), slices.Clone(l.book.Freed)
	return &next
}

// commit makes a draft the book once it is on disk; l.mu is held. A generation that could not be written is passed
// over: a part of it may be there.
func (l *ledger) commit(next *book) error {
	l.book.Generation++
	next.Generation = l.book.Generation
	if err := l.files.write(next); err != nil {
		return exhausted(fmt.Errorf("recording the exports: %w", err))
	}
	l.book = *next
	return nil
}

// filesystem derives two numbers from what makes a volume this one and no other of its name; l.mu is held. Numbers that
// are equal are left to those that servers choose by themselves.
func (l *ledger) filesystem(v *backend.Volume) string {
	taken := make(map[string]bool, len(l.book.Exports))
	for _, known := range l.book.Exports {
		taken[known.Filesystem] = true
	}
	for attempt := 0; ; attempt++ {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %d", v.ID, v.Created.UnixNano(), attempt))
		major, minor := binary.BigEndian.Uint32(sum[:]), binary.BigEndian.Uint32(sum[4:])
		made := fmt.Sprintf("%d.%d", major, minor)
		if major != 0 && minor != 0 && major != minor && !taken[made] {
			return made
		}
	}
}
