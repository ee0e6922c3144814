package nodeops

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/big"
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
// The digest is for reports: what decides is that each entry is equal in name, metadata (describeNode) and content. It is
// that of the sum of the digests of all entries: file systems list a directory in different orders, and no list of a
// million names must be kept in memory to sort it.
// Which names a file has is compared by inode; the content of one with several is added to the sum once. That takes about
// 40 bytes of memory for each file some of whose names are still to come: 128 MiB for three million of them.
func CompareTrees(ctx context.Context, dst, src string, mend bool, done func(bytes int64)) (Content, error) {
	c := &treeComparison{ctx: ctx, mend: mend, done: done, pairs: map[uint64]pair{}}
	if err := c.run(dst, src); err != nil {
		return Content{}, fmt.Errorf("comparing %s with its copy %s: %w", src, dst, err)
	}
	return c.found, nil
}

type treeComparison struct {
	treePair
	ctx     context.Context
	mend    bool
	done    func(int64)
	levels  []level
	pairs   map[uint64]pair // of files with several names, by inode of the source
	buffers [2][]byte
	limit   *readLimit
	sum     big.Int
	found   Content
	differs []string // the first ones
	more    int      // and how many more
}

// level is a directory on the current path.
type level struct {
	path    digest // of its name and those of the directories above
	entries int64
	removed int64 // from the target, to mend it
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
	if c.treePair, err = openPair(src, dst); err != nil {
		return err
	}
	defer c.close()
	c.buffers = [2][]byte{make([]byte, compareBuffer), make([]byte, compareBuffer)}
	if err := c.walk(c.ctx, c); err != nil {
		return err
	}
	if len(c.differs) > 0 {
		return c.error()
	}
	sum := digestOf(string(c.sum.Bytes()))
	c.found.SHA256 = hex.EncodeToString(sum[:])
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
	if c.more > 0 {
		c.differs = append(c.differs, fmt.Sprintf("and %d more", c.more))
	}
	return fmt.Errorf("%w: %s", ErrDiffers, strings.Join(c.differs, "; "))
}

func (c *treeComparison) differ(n *node, what string) {
	if len(c.differs) < mostDifferences {
		c.differs = append(c.differs, n.Name()+": "+what)
		return
	}
	c.more++
}

func (c *treeComparison) level() *level { return &c.levels[len(c.levels)-1] }

// add adds an entry of the current directory to the sum.
func (c *treeComparison) add(name string, facts []fact, content digest) {
	d := digestOf(append([]string{string(c.level().path[:]), name, string(content[:])}, words(facts)...)...)
	c.sum.Add(&c.sum, new(big.Int).SetBytes(d[:]))
}

func (c *treeComparison) foreign(n *node, name string) error { return foreign(n, name) }

// directory opens the copy of a directory. One that is not there ends the comparison: SyncTree makes it.
func (c *treeComparison) directory(to, from *node, name string) (*node, error) {
	n, err := there(to, name)
	if err != nil {
		return nil, err
	}
	if n == nil {
		c.differ(from, "the target does not have it")
		return nil, c.error()
	}
	if n.kind() != unix.S_IFDIR || n.Dev != to.Dev {
		n.Close()
		c.differ(from, "it is no directory at the target")
		return nil, c.error()
	}
	return n, nil
}

func (c *treeComparison) enter(_ *node, name string) error {
	var path digest
	if len(c.levels) > 0 {
		c.level().entries++
		path = digestOf(string(c.level().path[:]), name)
	}
	c.levels = append(c.levels, level{path: path})
	return nil
}

func (c *treeComparison) leave(from *node) error {
	facts, d, err := compareNodes(from, c.here())
	if err != nil {
		return err
	}
	is := c.level()
	if d != "" && is.removed == 0 { // a removal changes its time
		c.differ(from, d)
	}
	count, err := c.countTarget(from)
	if err != nil {
		return err
	}
	if count += is.removed; count != is.entries {
		c.differ(from, fmt.Sprintf("it has %d entries, and %d at the target", is.entries, count))
	}
	c.add("", facts, digest{})
	c.levels = c.levels[:len(c.levels)-1]
	return nil
}

// countTarget counts the entries of the current directory, without what SyncTree leaves there.
func (c *treeComparison) countTarget(from *node) (count int64, err error) {
	var entries dirNames
	for {
		name, _, err := entries.read(c.here().File)
		if errors.Is(err, io.EOF) {
			return count, nil
		}
		if err != nil {
			return 0, err
		}
		if c.atRoot() && name == lostAndFound {
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
	c.level().entries++
	n, err := there(c.here(), name)
	if err != nil {
		return err
	}
	if n == nil {
		c.differ(from, "the target does not have it")
		return nil
	}
	defer n.Close()
	what, err := c.node(from, n, name)
	if what == "" || err != nil {
		return err
	}
	c.differ(from, what)
	if !c.mend {
		return nil
	}
	c.level().removed++
	return removeTree(c.ctx, c.here().File, name)
}

// node compares anything but a directory, and says in what it differs.
func (c *treeComparison) node(from, to *node, name string) (what string, err error) {
	facts, what, err := compareNodes(from, to)
	if err != nil {
		return "", err
	}
	if what == "" && from.Nlink != to.Nlink {
		what = fmt.Sprintf("it has %d names, and %d at the target", from.Nlink, to.Nlink)
	}
	known, again := c.pairs[from.Ino]
	var content digest
	switch {
	case again && known.target != to.Ino:
		what = "it is a name of a file with other names, and of another file at the target"
	case again && known.differ:
		what = "its content differs"
	case again: // its content is equal
	case what == "" && from.kind() == unix.S_IFREG:
		if content, what, err = c.content(from, to); err != nil {
			return "", err
		}
	}
	if from.Nlink > 1 { // each name is without the content, whichever comes first
		c.remember(from, to, what != "")
		c.sum.Add(&c.sum, new(big.Int).SetBytes(content[:]))
		content = digest{}
	}
	c.add(name, facts, content)
	return what, nil
}

// remember keeps a file until all of its names were seen.
func (c *treeComparison) remember(from, to *node, differs bool) {
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

// content reads a file at both sides.
func (c *treeComparison) content(from, to *node) (content digest, what string, err error) {
	sides, files := [2]*node{from, to}, [2]*os.File{}
	for i, n := range sides {
		if files[i], err = n.open(); err != nil {
			return content, "", err
		}
		defer files[i].Close()
	}
	done := [2]func(int64){
		func(bytes int64) { c.found.Bytes += bytes; c.done(bytes) },
		func(int64) {},
	}
	limits := [2]*readLimit{c.limit, nil} // the target has what was written to it
	var digests [2]digest
	err = both(func(i int) (err error) {
		digests[i], err = digestContent(c.ctx, files[i], sides[i].Size, c.buffers[i], limits[i], done[i])
		return err
	})
	if digests[0] != digests[1] {
		what = "its content differs"
	}
	return digests[0], what, err
}
