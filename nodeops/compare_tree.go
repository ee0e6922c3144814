package nodeops

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrDiffers means that a copy is not equal to its source.
var ErrDiffers = errors.New("the copy differs from its source")

// Content is what a tree or a device has, as of reading all of it.
type Content struct {
	Bytes  int64 // of data, without holes
	Files  int64 // names of everything but directories; none in a device
	SHA256 string
}

// CompareTrees reads the trees dst and src, and returns the content of src if they are equal, and otherwise ErrDiffers.
// dst is read from its disk: everything is written back before, and what the page cache has of it is dropped. With mend,
// all entries that differ are removed from dst, so that SyncTree copies them again. done is called with the number of
// bytes that were read of src.
//
// The digests of both trees are computed on their own. That of an entry is the SHA-256 of its name, its metadata
// (describeNode; without what belongs to the file system, notOfTheContent) and its content. To that of a directory belongs
// the sum modulo 2^256 of those of its entries: file systems list a directory in different orders, and no list of a
// million names must be kept in memory to sort it. The sum is for reports: what decides is that each entry is equal.
// Which names a file has is compared by inode; their number is in the digest of each, and the content is added to the
// sum once. That takes about 40 bytes of memory for each file some of whose names are still to come: 128 MiB for three
// million of them.
func CompareTrees(ctx context.Context, dst, src string, mend bool, done func(bytes int64)) (Content, error) {
	c := &treeComparison{ctx: ctx, mend: mend, done: done, pairs: map[uint64]pair{}}
	if err := c.run(dst, src); err != nil {
		return Content{}, fmt.Errorf("comparing %s with its copy %s: %w", src, dst, err)
	}
	return c.found, nil
}

type treeComparison struct {
	ctx     context.Context
	mend    bool
	done    func(int64)
	into    openPath // the directories of dst
	levels  []level
	pairs   map[uint64]pair // of files with several names, by inode of the source
	buffers [2][]byte
	limit   *readLimit
	found   Content
	differs []error // the first ones
	more    int     // and how many more
}

// level is a directory on the current path, with the sums of the digests of its entries at the source and the target.
type level struct {
	name    string
	entries int64
	removed int64 // from the target, to mend it
	sums    [2]sum
}

// pair is a file with several names.
type pair struct {
	target uint64 // inode
	left   uint32 // names that were not seen
	differ bool
}

// mostDifferences limits how many are named.
const mostDifferences = 5

func (c *treeComparison) run(dst, src string) (err error) {
	if err := syncFS(dst); err != nil {
		return err
	}
	if c.limit, err = limitReads(dst, src); err != nil {
		return err
	}
	from, to, err := openPair(src, dst)
	if err != nil {
		return err
	}
	defer from.Close()
	defer to.Close()
	defer func() { c.into.close() }()
	c.buffers = [2][]byte{make([]byte, compareBuffer), make([]byte, compareBuffer)}
	c.levels = []level{{}} // for the digests of the root directories, and of files with several names
	w := treeWalk{
		enter:   func(dir *node, name string) error { return c.enter(to, dir, name) },
		leave:   c.leave,
		leaf:    c.leaf,
		foreign: foreign,
	}
	if err := w.walk(c.ctx, from); err != nil {
		return err
	}
	if sums := c.levels[0].sums; len(c.differs) == 0 && sums[0] != sums[1] {
		return fmt.Errorf("%w: the digests are %x and %x", ErrDiffers, sums[0].bytes(), sums[1].bytes())
	}
	if len(c.differs) > 0 {
		return c.error()
	}
	source := c.levels[0].sums[0].bytes()
	c.found.SHA256 = hex.EncodeToString(source[:])
	return nil
}

func syncFS(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := uninterrupted(func() error { return unix.Syncfs(int(f.Fd())) }); err != nil {
		return fmt.Errorf("writing everything back to %s: %w", path, err)
	}
	return nil
}

func (c *treeComparison) error() error {
	var all []string
	for _, err := range c.differs {
		all = append(all, err.Error())
	}
	if c.more > 0 {
		all = append(all, fmt.Sprintf("and %d more", c.more))
	}
	return fmt.Errorf("%w: %s", ErrDiffers, strings.Join(all, "; "))
}

func (c *treeComparison) differ(n *node, what string) {
	if len(c.differs) < mostDifferences {
		c.differs = append(c.differs, fmt.Errorf("%s: %s", n.Name(), what))
		return
	}
	c.more++
}

// enter opens the copy of a directory. One that is not there ends the comparison: SyncTree makes it.
func (c *treeComparison) enter(top, from *node, name string) error {
	made := top
	if len(c.into) > 0 {
		n, err := there(&c.into.last().node, name)
		if err != nil {
			return err
		}
		if n == nil {
			c.differ(from, "the target does not have it")
			return c.error()
		}
		defer n.Close()
		if n.kind() != unix.S_IFDIR || n.Dev != c.into.last().Dev {
			c.differ(from, "it is no directory at the target")
			return c.error()
		}
		made = n
	}
	dir, err := made.open()
	if err != nil {
		return err
	}
	c.into.enter(dir, made.Stat_t)
	c.levels = append(c.levels, level{name: name})
	return nil
}

func (c *treeComparison) leave(from *node) error {
	to := c.into.last()
	source, err := describeNode(from)
	if err != nil {
		return err
	}
	target, err := describeNode(&to.node)
	if err != nil {
		return err
	}
	here := c.levels[len(c.levels)-1]
	if d := difference(source, target); d != "" && here.removed == 0 { // a removal changes its time
		c.differ(from, d)
	}
	count, err := c.countTarget(from)
	if err != nil {
		return err
	}
	if count += here.removed; count != here.entries {
		c.differ(from, fmt.Sprintf("it has %d entries, and %d at the target", here.entries, count))
	}
	c.levels = c.levels[:len(c.levels)-1]
	c.add([2]digest{digestOf(here.name, source, here.sums[0].bytes()), digestOf(here.name, target, here.sums[1].bytes())})
	if len(c.into) == 1 {
		return nil
	}
	return c.into.leave()
}

// add adds an entry to the current directory.
func (c *treeComparison) add(digests [2]digest) {
	here := &c.levels[len(c.levels)-1]
	here.entries++
	for i := range digests {
		here.sums[i].add(digests[i])
	}
}

// countTarget counts the entries of the current directory, without what SyncTree leaves there.
func (c *treeComparison) countTarget(from *node) (count int64, err error) {
	var entries dirNames
	for {
		name, _, err := entries.read(c.into.last().File)
		if errors.Is(err, io.EOF) {
			return count, nil
		}
		if err != nil {
			return 0, err
		}
		if len(c.into) == 1 && name == lostAndFound {
			kept, err := exists(from, name)
			if err != nil {
				return 0, err
			}
			if !kept {
				continue
			}
		}
		count++
	}
}

func (c *treeComparison) leaf(from *node, name string) error {
	c.found.Files++
	to := &c.into.last().node
	n, err := there(to, name)
	if err != nil {
		return err
	}
	if n == nil {
		c.differ(from, "the target does not have it")
		c.add([2]digest{})
		return nil
	}
	defer n.Close()
	digests, what, err := c.node(from, n, name)
	if err != nil {
		return err
	}
	c.add(digests)
	if what == "" {
		return nil
	}
	c.differ(from, what)
	if !c.mend {
		return nil
	}
	c.levels[len(c.levels)-1].removed++
	return removeTree(c.ctx, to.File, name)
}

// node compares anything but a directory, and says in what it differs.
func (c *treeComparison) node(from, to *node, name string) (digests [2]digest, what string, err error) {
	known, again := c.pairs[from.Ino]
	if from.Nlink < 2 {
		again = false
	}
	var contents [2]digest
	sides := [2]*node{from, to}
	var facts [2][]fact
	for i, n := range sides {
		if facts[i], err = describeNode(n); err != nil {
			return digests, "", err
		}
		facts[i] = append(facts[i], fact{"number of names", fmt.Sprint(n.Nlink)})
	}
	what = difference(facts[0], facts[1])
	switch {
	case again && known.target != to.Ino:
		what = "it is a name of a file with other names, and of another file at the target"
	case again && known.differ:
		what = "its content differs"
	case again: // its content is equal
	case what == "" && from.kind() == unix.S_IFREG:
		if contents, err = c.contents(sides); err != nil {
			return digests, "", err
		}
		if contents[0] != contents[1] {
			what = "its content differs"
		}
	}
	c.remember(from, to, what != "")
	for i := range digests {
		if from.Nlink > 1 { // each name is without the content, whichever comes first
			if !again {
				c.levels[0].sums[i].add(digestOf("", facts[i], contents[i]))
			}
			contents[i] = digest{}
		}
		digests[i] = digestOf(name, facts[i], contents[i])
	}
	return digests, what, nil
}

// remember keeps a file until all of its names were seen.
func (c *treeComparison) remember(from, to *node, differs bool) {
	if from.Nlink < 2 {
		return
	}
	p, again := c.pairs[from.Ino]
	if !again {
		p = pair{target: to.Ino, left: uint32(from.Nlink), differ: differs} //nolint:gosec // no file system has more
	}
	if p.left--; p.left == 0 {
		delete(c.pairs, from.Ino)
		return
	}
	c.pairs[from.Ino] = p
}

// contents reads a file at both sides.
func (c *treeComparison) contents(sides [2]*node) ([2]digest, error) {
	files := [2]*os.File{}
	for i, n := range sides {
		f, err := n.open()
		if err != nil {
			return [2]digest{}, err
		}
		defer f.Close()
		files[i] = f
	}
	done := [2]func(int64){
		func(bytes int64) { c.found.Bytes += bytes; c.done(bytes) },
		func(int64) {},
	}
	limits := [2]*readLimit{c.limit, nil} // the target has what was written to it
	return both(func(i int) (digest, error) {
		return digestContent(c.ctx, files[i], sides[i].Size, c.buffers[i], limits[i], done[i])
	})
}

// digestOf is the digest of an entry. Each part has its length before it.
func digestOf(name string, facts []fact, content digest) (d digest) {
	h := sha256.New()
	part := func(s string) { fmt.Fprintf(h, "%d:%s", len(s), s) }
	part(name)
	for _, f := range facts {
		part(f.name)
		part(f.value)
	}
	part(string(content[:]))
	h.Sum(d[:0])
	return d
}
