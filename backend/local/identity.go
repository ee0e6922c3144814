package local

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/crashpoint"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// poolHead is the content of pool.json. Generation is 0 for a pool of a release that did not count openings.
type poolHead struct {
	Version    int    `json:"version"`
	UUID       string `json:"uuid"`
	Engine     string `json:"engine"`
	Generation int64  `json:"generation,omitempty"`
}

func (h poolHead) identity() backend.PoolIdentity {
	return backend.PoolIdentity{ID: h.UUID, Generation: h.Generation}
}

// identify checks that the directory is the expected pool, or initializes a new pool if none is expected.
func (p *pool) identify(serve bool) error {
	head, err := p.readHead()
	if errors.Is(err, fs.ErrNotExist) {
		return p.initialise(serve)
	}
	if err != nil {
		return err
	}
	if err := matches(p.Expect, head.identity()); err != nil {
		return err
	}
	switch {
	case head.Version > version:
		return fmt.Errorf("%w: %s has version %d, this program knows %d; use the newer program", backend.ErrUnavailable, poolFile, head.Version, version)
	case head.Engine != p.Engine:
		return fmt.Errorf("%w: it was created with engine=%s, not %s; a pool keeps its engine", backend.ErrInvalid, head.Engine, p.Engine)
	}
	p.head = head
	return nil
}

func (p *pool) readHead() (head poolHead, err error) {
	data, err := readFile(p.root, poolFile)
	if err != nil {
		return head, err
	}
	if err := json.Unmarshal(data, &head); err != nil {
		whole, _ := json.Marshal(poolHead{version, cmp.Or(p.Expect.ID, rand.Text()), p.Engine, p.Expect.Generation}) // marshalling these types cannot fail
		return head, fmt.Errorf("%w: %s is damaged (%w); write it again as %s, with the engine that it was created with: the volumes do not depend on it", backend.ErrUnavailable, poolFile, err, whole)
	}
	return head, nil
}

// matches returns why a pool is not the expected one, or nil.
func matches(e backend.PoolExpectation, is backend.PoolIdentity) error {
	var what string
	switch {
	case e.ID == "" || is.ID != e.ID && e.Empty:
		return nil
	case is.ID != e.ID:
		what = fmt.Sprintf("pool %s is there, and pool %s is expected: mount the disk of the latter there", cmp.Or(is.ID, "without an ID"), e.ID)
	case is.Generation < e.Generation:
		what = fmt.Sprintf("an older copy of the pool with the ID %s is there, such as a restored image: it was opened %d times, and the one in use %d times; mount the current disk", e.ID, is.Generation, e.Generation)
	default:
		return nil
	}
	return backend.BecauseOf(backend.WrongPool, fmt.Errorf("%w: %s and it is served again within %s%s", backend.ErrUnavailable, what, seekEvery,
		remedy(e, "if that is gone for good and the pool there should take its place")))
}

// notMounted returns the error that the expected pool is not in its directory, which is not modified.
func (p *pool) notMounted(found string) error {
	switch e := p.Expect; {
	case e.Unread:
		return fmt.Errorf("%w: %s, and the records of the pool could not be read yet: no pool is created before that", backend.ErrUnavailable, found)
	case e.ID == "" && !e.Existed:
		return backend.BecauseOf(backend.NotMounted, fmt.Errorf("%w: %s", backend.ErrUnavailable, found))
	default:
		was := "a pool, whose ID is not known, was there"
		if e.ID != "" {
			was = fmt.Sprintf("pool %s is expected", e.ID)
		}
		return backend.BecauseOf(backend.NotMounted, fmt.Errorf("%w: %s, and %s: mount its disk there and it is served again within %s%s",
			backend.ErrUnavailable, found, was, seekEvery, remedy(e, "if it is gone for good with all its data")))
	}
}

func remedy(e backend.PoolExpectation, when string) string {
	if e.Remedy == "" {
		return ""
	}
	return fmt.Sprintf("; or, %s, run: %s", when, e.Remedy)
}

// absent returns the error about a directory that cannot be opened.
func (p *pool) absent(err error) error {
	if errors.Is(err, fs.ErrNotExist) && !p.Expect.MayBegin() {
		return p.notMounted("there is no such directory")
	}
	return fmt.Errorf("%w; it must be an existing directory", err)
}

// initialise initializes a new pool in an empty directory, unless another pool is expected there.
func (p *pool) initialise(serve bool) error {
	names, err := readNames(p.root, ".")
	if err != nil {
		return err
	}
	stranger := slices.IndexFunc(names, func(name string) bool {
		return name != poolFile+".new" && !slices.Contains(diskFiles, name)
	})
	switch {
	case !p.Expect.MayBegin() && stranger >= 0:
		return p.notMounted(fmt.Sprintf("no pool is there, but %s", backend.Quote(names[stranger])))
	case !p.Expect.MayBegin():
		return p.notMounted("the directory is empty")
	case stranger >= 0:
		return fmt.Errorf("%w: it holds %s and is not a pool; use an empty directory", backend.ErrInvalid, backend.Quote(names[stranger]))
	case !serve:
		return p.notMounted("the directory is empty: there is no pool, unless its disk is not mounted")
	}
	why, err := nodeops.Host{Proc: p.HostProc}.NotMounted(p.Path, p.RequireMount)
	switch {
	case err != nil:
		return fmt.Errorf("%w: no pool is created before it is known which pool belongs there: %w", backend.ErrUnavailable, err)
	case why != "":
		return p.notMounted("no pool is created: " + why)
	}
	p.head = poolHead{Version: version, UUID: rand.Text(), Engine: p.Engine}
	if err := writeFile(p.root, poolFile, p.head); err != nil {
		return err
	}
	crashpoint.Here(crashpoint.PoolBegun)
	return nil
}

// count increments the generation. The new file is locked before the rename, so that the pool is never without a lock.
// If the pool cannot be written, it is counted later.
func (p *pool) count() error {
	head, err := p.readHead()
	if err != nil {
		return err
	}
	if err := matches(p.Expect, head.identity()); err != nil {
		return err
	}
	head.UUID = cmp.Or(head.UUID, rand.Text())
	head.Generation++
	data, err := encode(head)
	if err != nil {
		return err
	}
	const fresh = poolFile + ".new"
	if err := p.root.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := nodeops.WriteNew(p.root, fresh, data); err != nil {
		return err
	}
	locked, err := nodeops.Lock(func(flag int) (*os.File, error) { return p.root.OpenFile(fresh, flag, 0) }, unix.LOCK_EX|unix.LOCK_NB)
	if err != nil {
		return err
	}
	crashpoint.Here(crashpoint.PoolCounted)
	if err := p.root.Rename(fresh, poolFile); err != nil {
		return errors.Join(err, locked.Close())
	}
	// While a deleted file is open, the kernel refuses to remount its file system read-only.
	err = p.locked.Close()
	p.locked = locked
	if err := errors.Join(err, nodeops.SyncDir(p.root, ".")); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.head = head
	p.counted.Store(true)
	return nil
}

// tryCount is count for a pool whose file system may be full or read-only; that must not prevent opening the pool.
func (p *pool) tryCount() error {
	err := p.count()
	for _, later := range []error{unix.EROFS, unix.ENOSPC, unix.EDQUOT} {
		if errors.Is(err, later) {
			p.log.Warn("the pool cannot record that it was opened yet; retrying", "error", err)
			return nil
		}
	}
	return err
}

func isPoolFile(root *os.Root, f *os.File) bool {
	named, err := root.Stat(poolFile)
	if err != nil {
		return false
	}
	is, err := f.Stat()
	return err == nil && os.SameFile(named, is)
}

// holdsNothing returns whether a pool is empty and nothing is being created in it.
func (p *pool) holdsNothing() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, entries := range p.entries {
		if len(entries) > 0 {
			return false
		}
	}
	return len(p.trash) == 0 && len(p.building) == 0
}

// identity returns the current identity of the pool.
func (p *pool) identity() backend.PoolIdentity {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.head.identity()
}
