package nodeops

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrForeign means that a tree has another file system in it, which a copy of the tree would lack.
var ErrForeign = errors.New("another file system is there, or a subvolume of btrfs")

// lostAndFound is a directory that ext4 makes in its root directory. It stays there, whatever the source has.
const lostAndFound = "lost+found"

// cephSnapshots is a name that each directory of a CephFS has for its snapshots, and no other entry gets.
const cephSnapshots = ".snap"

// SyncTree makes the tree dst, which may be in another file system, equal to src. It keeps what CopyTree keeps, or fails
// with ErrCannotKeep; notOfTheContent lists what belongs to the file system and is left out. What dst has and src has
// not is removed, but for lost+found in the root directory.
//
// A call that was interrupted at any point is continued by the next: what is complete at dst stays. A file is complete if
// all its metadata is equal. Its modification time is set last, so a file that was not finished has the time at which it
// was written. It has its final name from the start: temporary files (O_TMPFILE) do not exist in every file system, and a
// large file would have to be begun again. After a power failure, a file may have metadata of a complete one without its
// content; CompareTrees finds that.
//
// done is called with the number of bytes of data that are complete, copied or not. SyncTree returns the number of bytes
// that it wrote. Besides two buffers it needs memory for neither the number of files nor that of hard links.
func SyncTree(ctx context.Context, dst, src string, done func(bytes int64)) (written int64, err error) {
	s := &treeSync{dst: dst, src: src}
	s.contentSync = newContentSync(ctx, func(bytes int64) {
		s.bytes += bytes
		done(bytes)
	}, copyChunk)
	if err := s.run(); err != nil {
		return s.written, fmt.Errorf("copying %s to %s: %w", src, dst, s.explainFull(err))
	}
	return s.written, nil
}

type treeSync struct {
	*contentSync
	treePair
	dst, src string
	inCeph   bool
	first    hardLinks
	bytes    int64 // of data that is complete
	entries  int64 // that are complete
}

func (s *treeSync) run() (err error) {
	if err := seesAllXattrs(); err != nil {
		return err
	}
	if s.limit, err = limitReads(s.dst, s.src); err != nil {
		return err
	}
	if s.treePair, err = openPair(s.src, s.dst); err != nil {
		return err
	}
	defer s.close()
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(s.to.Fd()), &st); err != nil {
		return fmt.Errorf("%s: %w", s.dst, err)
	}
	s.inCeph = st.Type == unix.CEPH_SUPER_MAGIC
	if err := s.openLinks(s.from); err != nil {
		return err
	}
	defer func() {
		if s.first.dir != nil {
			s.first.dir.Close()
		}
	}()
	return s.walk(s.ctx, s)
}

func (s *treeSync) foreign(n *node, name string) error { return foreign(n, name) }

func foreign(n *node, _ string) error { return fmt.Errorf("%s: %w", n.Name(), ErrForeign) }

// openLinks chooses the directory for hard links, which must be within dst: the name is one that the source does not
// have. What an earlier call noted there is used again.
func (s *treeSync) openLinks(from *node) error {
	name := ".holdfast-links"
	for i := 1; ; i++ {
		there, err := exists(from, name)
		if err != nil {
			return err
		}
		if !there {
			break
		}
		name = fmt.Sprintf(".holdfast-links-%d", i)
	}
	s.first.path = filepath.Join(s.dst, name)
	err := s.first.open()
	for _, e := range []unix.Errno{unix.ENOENT, unix.ENOTDIR, unix.ELOOP} { // what is no directory is removed, as all others
		if errors.Is(err, e) {
			return nil
		}
	}
	return err
}

func exists(dir *node, name string) (bool, error) {
	var st unix.Stat_t
	err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, &os.PathError{Op: "stat", Path: shortPath(dir.File, name), Err: err}
	}
	return true, nil
}

// there opens the copy of an entry; nil if it does not exist.
func (s *treeSync) there(dir *node, name string) (*node, error) {
	if s.inCeph && name == cephSnapshots {
		return nil, fmt.Errorf("%s: %w: in a CephFS this is the name of the directory of snapshots; give it another one in the source", shortPath(dir.File, name), ErrCannotKeep)
	}
	return there(dir, name)
}

// there opens an entry; nil if it does not exist.
func there(dir *node, name string) (*node, error) {
	n, err := openNode(dir.File, name)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	return n, err
}

// directory returns the copy of a directory, which it makes if it is not there.
func (s *treeSync) directory(to, _ *node, name string) (*node, error) {
	n, err := s.there(to, name)
	switch {
	case err != nil:
		return nil, err
	case n != nil && n.Dev != to.Dev:
		defer n.Close()
		return nil, foreign(n, name)
	case n != nil && n.kind() == unix.S_IFDIR:
		return n, nil
	case n != nil:
		defer n.Close()
		if err := unlink(to.File, name); err != nil {
			return nil, err
		}
	}
	if err := unix.Mkdirat(int(to.Fd()), name, 0o700); err != nil {
		return nil, &os.PathError{Op: "mkdir", Path: shortPath(to.File, name), Err: err}
	}
	return openNode(to.File, name)
}

// enter removes what the current directory has and its source has not.
func (s *treeSync) enter(from *node, _ string) error {
	to := s.into.last()
	var entries dirNames
	for {
		if err := s.ctx.Err(); err != nil {
			return err
		}
		name, _, err := entries.read(to.File)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if s.atRoot() && (name == lostAndFound || s.first.dir != nil && name == filepath.Base(s.first.path)) {
			continue
		}
		kept, err := exists(from, name)
		if err != nil {
			return err
		}
		if kept {
			continue
		}
		if err := removeTree(s.ctx, to.File, name); err != nil {
			return fmt.Errorf("removing %s, which the source does not have: %w", shortPath(to.File, name), err)
		}
	}
}

// leave copies the metadata of a directory, after its content, unless it is equal.
func (s *treeSync) leave(from *node) error {
	if s.atRoot() {
		if err := s.first.close(s.ctx); err != nil { // it changes the time of the root directory
			return err
		}
	}
	to := s.here()
	if err := unix.Fstat(int(to.Fd()), &to.Stat_t); err != nil {
		return fmt.Errorf("%s: %w", to.Name(), err)
	}
	facts, differs, err := compareNodes(from, to)
	if err != nil {
		return err
	}
	s.entries++
	if differs == "" {
		return nil
	}
	return keep(to, from, facts)
}
