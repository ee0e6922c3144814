package export

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/holdfast-storage/holdfast/backend"
)

// mostIDs is the maximum number of exports; 0 is not a valid id.
const mostIDs = 1<<16 - 1

// identity is how clients identify an export. Their file handles contain it, so it must last as long as the volume.
type identity struct {
	ID         uint16 `json:"id"`
	Filesystem string `json:"filesystem"`
}

// book is the content of the ledger on disk.
type book struct {
	Generation uint64 `json:"generation"`
	// Next and all ids above it were never used. Freed are used ids, in the order in which they were freed: clients may
	// still have file handles of the last ones.
	Next    int                     `json:"next"`
	Freed   []uint16                `json:"freed,omitempty"`
	Exports map[backend.ID]identity `json:"exports"`
}

// ledger assigns identities to volumes and persists them. Ids are reused only after all ids were used, the one that was
// freed first first.
type ledger struct {
	files files
	most  int

	writing sync.Mutex // held by the one that writes; taken before mu

	mu       sync.Mutex
	book     book // as it is on disk, but for the generation of a write that failed
	waiting  *batch
	reserved map[backend.ID]bool // volumes under creation that have no identity yet
}

// openLedger reads the ledger from dir. A missing one is created only if there are no volumes.
func openLedger(dir string, most int, volumes bool, log *slog.Logger) (*ledger, error) {
	l := &ledger{files: files{dir}, most: most, waiting: &batch{}, reserved: map[backend.ID]bool{}}
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

// ids returns the volumes that have an identity.
func (l *ledger) ids() []backend.ID {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.book.Exports))
}

// full returns whether no more volumes can be exported. l.mu must be held.
func (l *ledger) full() bool { return len(l.book.Exports)+len(l.reserved) >= l.most }

// isFull returns whether no more volumes can be exported.
func (l *ledger) isFull() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.full()
}

// reserve counts a volume before its creation, so that no volume is created that cannot be exported.
func (l *ledger) reserve(id backend.ID) (release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.book.Exports[id]; !known && !l.reserved[id] {
		if l.full() {
			return nil, fmt.Errorf("%w: volume %s: this server exports %d volumes, with those being created, and may export %d; delete some, raise maxExports of the NFSServer, which also allocates it loop devices for more images, or use another server",
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

// assign returns the identity of a volume, and assigns one if needed.
func (l *ledger) assign(v *backend.Volume) (made identity, err error) {
	failed := l.commit(func(next *book) bool {
		known, ok := next.Exports[v.ID]
		switch made = known; {
		case ok:
			return false
		case next.Next <= mostIDs:
			made.ID = uint16(next.Next) //nolint:gosec // the line above bounds it
			next.Next++
		case len(next.Freed) > 0:
			made.ID, next.Freed = next.Freed[0], next.Freed[1:]
		default:
			err = fmt.Errorf("%w: all %d export IDs are in use; use another server", backend.ErrExhausted, mostIDs)
			return false
		}
		made.Filesystem = next.filesystem(v)
		next.Exports[v.ID] = made
		return true
	})
	return made, cmp.Or(err, failed)
}

// retire frees the identity of a deleted volume.
func (l *ledger) retire(id backend.ID) error {
	return l.commit(func(next *book) bool {
		gone, ok := next.Exports[id]
		if ok {
			delete(next.Exports, id)
			next.Freed = append(next.Freed, gone.ID)
		}
		return ok
	})
}

// batch is a list of changes that are written together. Each returns whether it changed something.
type batch struct {
	changes []func(next *book) bool
	done    bool
	err     error
}

// errNotWritten is what the others of a batch get when the one that writes panics.
var errNotWritten = fmt.Errorf("%w: the exports were not recorded", backend.ErrUnavailable)

// commit makes a change, and returns when it is on disk. Changes that are requested while the book is being written are
// written together afterwards, by the first of them.
func (l *ledger) commit(change func(next *book) bool) error {
	l.mu.Lock()
	b := l.waiting
	b.changes = append(b.changes, change)
	l.mu.Unlock()
	l.writing.Lock()
	defer l.writing.Unlock()
	if !b.done {
		b.done, b.err = true, errNotWritten
		b.err = l.write()
	}
	return b.err
}

// write writes the book with the changes that wait, and makes it the current one. l.writing must be held. The generation
// of a failed write is not reused, since the write may be partly on disk.
func (l *ledger) write() error {
	l.mu.Lock()
	l.book.Generation++
	next, changes, changed := l.book, l.waiting.changes, false
	next.Exports, next.Freed, l.waiting = maps.Clone(next.Exports), slices.Clone(next.Freed), &batch{}
	l.mu.Unlock()
	for _, change := range changes {
		changed = change(&next) || changed
	}
	if !changed {
		return nil
	}
	if err := l.files.write(&next); err != nil {
		return exhausted(fmt.Errorf("recording the exports: %w", err))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.book = next
	maps.DeleteFunc(l.reserved, func(id backend.ID, _ bool) bool { return next.Exports[id] != identity{} })
	return nil
}

// filesystem derives the two numbers of Ganesha's Filesystem_id from what identifies a volume beyond its name. The two
// must differ: servers use equal ones for file systems without an id.
func (b *book) filesystem(v *backend.Volume) string {
	taken := make(map[string]bool, len(b.Exports))
	for _, known := range b.Exports {
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
