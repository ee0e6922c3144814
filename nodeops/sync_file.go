package nodeops

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// leaf makes the copy of anything but a directory, unless it is complete.
func (s *treeSync) leaf(from *node, name string) error {
	to := s.here()
	facts, err := describeNode(from)
	if err != nil {
		return err
	}
	has, err := s.there(to, name)
	if err != nil {
		return err
	}
	if has != nil {
		defer has.Close()
		if has.Dev != to.Dev {
			return foreign(has, name)
		}
	}
	linked, err := s.link(to, from, has, name, facts)
	if err != nil {
		return err
	}
	if !linked {
		if err := s.complete(to, from, has, name, facts); err != nil {
			return err
		}
	}
	s.entries++
	return nil
}

// complete makes a copy complete, and notes it for further names.
func (s *treeSync) complete(to, from, has *node, name string, facts []fact) error {
	equal, err := isCopy(has, from, facts)
	if err != nil {
		return err
	}
	if equal {
		s.done(dataOf(from))
		if has.Nlink == from.Nlink { // all names are there; one more might be too many
			return nil
		}
		return s.first.note(to, from, name)
	}
	if err := s.create(to, from, has, name); err != nil {
		return err
	}
	made, err := openNode(to.File, name)
	if err != nil {
		return err
	}
	defer made.Close()
	if err := keep(made, from, facts); err != nil {
		return err
	}
	return s.first.note(to, from, name)
}

// isCopy says whether a node has all metadata of its source, and no more names.
func isCopy(has, from *node, facts []fact) (bool, error) {
	if has == nil || has.Nlink > from.Nlink {
		return false, nil
	}
	found, err := describeNode(has)
	return err == nil && difference(facts, found) == "", err
}

// dataOf is about how many bytes of a file are no holes.
func dataOf(n *node) int64 {
	if n.kind() != unix.S_IFREG {
		return 0
	}
	return min(n.Size, n.Blocks*512)
}

// link gives a file that is complete another name, unless it has it.
func (s *treeSync) link(to, from, has *node, name string, facts []fact) (bool, error) {
	if from.Nlink < 2 || s.first.dir == nil {
		return false, nil
	}
	links := &node{File: s.first.dir}
	noted, err := there(links, inodeName(from))
	if noted == nil || err != nil {
		return false, err
	}
	defer noted.Close()
	found, err := describeNode(noted)
	if err != nil {
		return false, err
	}
	if difference(facts, found) != "" { // it was noted for another source
		return false, unlink(s.first.dir, inodeName(from))
	}
	if has != nil && has.Ino == noted.Ino {
		return true, nil
	}
	if has != nil {
		if err := removeTree(s.ctx, to.File, name); err != nil {
			return false, err
		}
	}
	return s.first.link(to, from, name)
}

// create makes a node with the content of its source. What is there is replaced, unless it is a regular file that can be
// continued: one without other names, whose content is not that of another file.
func (s *treeSync) create(to, from, has *node, name string) error {
	if has != nil && has.kind() == unix.S_IFREG && from.kind() == unix.S_IFREG && has.Nlink == 1 {
		err := s.content(to, from, name, 0)
		if !errors.Is(err, unix.EOPNOTSUPP) { // it cannot make holes in the file
			return err
		}
	}
	if has != nil {
		if err := removeTree(s.ctx, to.File, name); err != nil {
			return err
		}
	}
	if from.kind() == unix.S_IFREG {
		return s.content(to, from, name, unix.O_CREAT|unix.O_EXCL)
	}
	if err := create(s.ctx, to, from, name); err != nil {
		return fmt.Errorf("%s: %w", from.Name(), err)
	}
	return nil
}

func (s *treeSync) content(to, from *node, name string, flags int) (err error) {
	src, err := from.open()
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := openAt(to.File, name, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK|flags, 0o600)
	if err != nil {
		return err
	}
	// On a network, a lack of space may be known only then.
	defer func() { err = errors.Join(err, dst.Close()) }()
	return s.file(dst, src, from.Size)
}

// explainFull says how much a target lacks that has no space left.
func (s *treeSync) explainFull(err error) error {
	if errors.Is(err, ErrCannotKeep) || !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
		return err
	}
	usage, usageErr := statfs(s.dst)
	need, needErr := sizeOf(s.ctx, s.src)
	if failed := errors.Join(usageErr, needErr); failed != nil {
		return fmt.Errorf("%w (how much is missing is not known: %v)", err, failed)
	}
	if usage.Inodes > 0 && usage.InodesFree == 0 {
		return fmt.Errorf("the target has no inodes left: about %d are missing: %w", max(1, need.entries-s.entries), err)
	}
	missing := max(need.bytes-s.bytes-usage.Available, 1)
	return fmt.Errorf("the target is full: about %s are missing; %s are still to be copied, and %s are free: %w",
		mebibytes(missing), mebibytes(max(0, need.bytes-s.bytes)), mebibytes(usage.Available), err)
}

type treeSize struct{ bytes, entries int64 }

// sizeOf counts the data and the entries of a tree.
func sizeOf(ctx context.Context, src string) (size treeSize, err error) {
	top, err := openTop(src)
	if err != nil {
		return size, err
	}
	defer top.Close()
	w := treeWalk{
		enter: func(*node, string) error { return nil },
		leave: func(*node) error { size.entries++; return nil },
		leaf: func(n *node, _ string) error {
			size.entries++
			size.bytes += dataOf(n) / max(1, int64(n.Nlink)) //nolint:gosec // a number of names
			return nil
		},
	}
	return size, w.walk(ctx, top)
}
