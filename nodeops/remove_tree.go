package nodeops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// removeDepth is the number of directories that a removal holds open; directories below that depth are moved up first.
const removeDepth = 32

// RemoveTree removes a directory with its content, or a file. It is no error if it does not exist. It follows no
// symlinks and enters no other mount.
//
// It needs few descriptors and little memory regardless of depth and size of the tree, also in the kernel, where an
// open directory keeps all of its parents in memory: directories that are too deep are moved up, into one beside the
// topmost ones. A repeated call continues after an interruption or a crash. If entries cannot be removed, all others
// are, and the error names the first.
func RemoveTree(ctx context.Context, parent *os.Root, name string) error {
	dir, err := parent.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := removeTree(ctx, dir, name); err != nil {
		return fmt.Errorf("removing %s: %w", filepath.Join(dir.Name(), name), err)
	}
	return nil
}

func removeTree(ctx context.Context, parent *os.File, name string) error {
	top, err := openBeneath(parent, name)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return unlink(parent, name)
	case err != nil:
		return err
	}
	defer top.Close()
	r := &treeRemoval{ctx: ctx, top: top}
	if err := r.run(); err != nil {
		return err
	}
	return rmdir(parent, name)
}

// treeRemoval is a removal in progress.
type treeRemoval struct {
	ctx        context.Context
	top        *os.File
	raise      raised // where directories that are too deep are moved
	count      uint64 // for unique names
	left       error  // first error about an entry that could not be removed
	full       error  // first ENOSPC of a move since the last pass over the root directory
	progressed bool   // something was removed or moved since then
}

// raised is a directory directly in the root directory.
type raised struct {
	dir  *os.File
	name string // empty for the root directory itself
}

// run empties the root directory in passes, each of which removes what the previous one moved up.
func (r *treeRemoval) run() error {
	for now := "."; ; {
		if now == "." {
			r.full, r.progressed = nil, false
		}
		r.raise = raised{}
		_, err := r.clear(r.top, now, 0)
		if r.raise.name != "" {
			r.raise.dir.Close()
		}
		switch {
		case err != nil:
			return err
		case r.raise.name != "":
			now = r.raise.name
		case r.full != nil && r.progressed: // space may be available now
			now = "."
		default:
			return cmp.Or(r.left, r.full)
		}
	}
}

// clear empties a directory and removes it, unless it is the root directory. It repeats that as long as something is
// removed: entries that were added in the meantime may not have been listed.
func (r *treeRemoval) clear(dir *os.File, name string, depth int) (gone bool, err error) {
	for {
		went, err := r.clearOnce(dir, name, depth)
		if err != nil {
			return false, err
		}
		if name != "." {
			if err = rmdir(dir, name); !errors.Is(err, unix.ENOTEMPTY) {
				return r.note(err), nil
			}
		}
		if !went { // what could not be removed or moved is recorded
			return false, nil
		}
	}
}

// clearOnce returns whether anything was removed or moved away.
func (r *treeRemoval) clearOnce(parent *os.File, name string, depth int) (went bool, err error) {
	dir, err := openBeneath(parent, name)
	if err != nil {
		return r.note(err), nil
	}
	defer dir.Close()
	var entries dirNames
	for {
		if err := r.ctx.Err(); err != nil {
			return went, err
		}
		name, maybeDir, err := entries.read(dir)
		switch {
		case errors.Is(err, io.EOF):
			return went, nil
		case err != nil:
			r.note(err)
			return went, nil
		case depth == 0 && name == r.raise.name:
			continue // removed in a later pass
		}
		gone, err := r.entry(dir, name, maybeDir, depth)
		if err != nil {
			return went, err
		}
		went = went || gone
	}
}

// entry removes one entry of a directory. It returns only errors that end the removal; others are recorded.
func (r *treeRemoval) entry(dir *os.File, name string, maybeDir bool, depth int) (gone bool, err error) {
	if !maybeDir {
		err := unlink(dir, name)
		if !errors.Is(err, unix.EISDIR) {
			return r.note(err), nil
		}
	}
	switch err := rmdir(dir, name); {
	case errors.Is(err, unix.ENOTDIR):
		return r.note(unlink(dir, name)), nil
	case !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EEXIST):
		return r.note(err), nil
	case depth >= removeDepth:
		return r.note(r.moveUp(dir, name)), nil
	}
	return r.clear(dir, name, depth+1)
}

// note returns whether there was no error, and records the first one.
func (r *treeRemoval) note(err error) bool {
	switch {
	case err == nil:
		r.progressed = true
	case isNoSpace(err):
		r.full = cmp.Or(r.full, err)
	default:
		r.left = cmp.Or(r.left, err)
	}
	return err == nil
}

func isNoSpace(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EMLINK)
}

// moveUp moves a directory into one beside the topmost. If a full disk or a limit prevents the creation of that one, it
// is moved into the root directory.
func (r *treeRemoval) moveUp(dir *os.File, name string) error {
	if r.raise.dir == nil {
		if err := r.makeRaise(); isNoSpace(err) {
			r.raise.dir = r.top
		} else if err != nil {
			return err
		}
	}
	move := func(number string) error {
		return unix.Renameat2(int(dir.Fd()), name, int(r.raise.dir.Fd()), number, unix.RENAME_NOREPLACE)
	}
	err := r.numbered(move)
	if errors.Is(err, unix.EXDEV) { // a user gave it another project id
		if err = disinherit(r.raise.dir); err == nil {
			err = r.numbered(move)
		}
	}
	if err != nil {
		return &os.PathError{Op: "moving", Path: shortPath(dir, name), Err: err}
	}
	if r.raise.name == "" {
		r.full = cmp.Or(r.full, error(unix.ENOSPC)) // another pass over the root directory is needed
	}
	return nil
}

func (r *treeRemoval) makeRaise() error {
	return r.numbered(func(number string) error {
		if err := unix.Mkdirat(int(r.top.Fd()), number, 0o700); err != nil {
			return err
		}
		made, err := openBeneath(r.top, number)
		if err != nil {
			return err
		}
		r.raise = raised{made, number}
		return nil
	})
}

// numbered calls try with numbers until one is not in use as a name.
func (r *treeRemoval) numbered(try func(number string) error) error {
	for {
		r.count++
		err := uninterrupted(func() error { return try(".holdfast-remove-" + strconv.FormatUint(r.count, 10)) })
		if !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
}

func unlink(dir *os.File, name string) error { return unlinkAt(dir, name, 0) }

func rmdir(dir *os.File, name string) error { return unlinkAt(dir, name, unix.AT_REMOVEDIR) }

// unlinkAt ignores that the entry does not exist.
func unlinkAt(dir *os.File, name string, flags int) error {
	err := uninterrupted(func() error { return unix.Unlinkat(int(dir.Fd()), name, flags) })
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return &os.PathError{Op: "remove", Path: shortPath(dir, name), Err: err}
}

// openBeneath opens a subdirectory, unless it is a symlink or a mount point.
func openBeneath(parent *os.File, name string) (*os.File, error) {
	how := unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_NOATIME | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	}
	var fd int
	err := uninterrupted(func() (err error) {
		fd, err = unix.Openat2(int(parent.Fd()), name, &how)
		return err
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: shortPath(parent, name), Err: err}
	}
	return os.NewFile(uintptr(fd), shortPath(parent, name)), nil
}

// longestPath limits the memory for names of open files: deep in a tree each would have the whole path.
const longestPath = 512

// shortPath returns the path of an entry for messages, without the middle if it is long.
func shortPath(parent *os.File, name string) string {
	path := filepath.Join(parent.Name(), name) // a directory may have been opened as . or ..
	if len(path) <= longestPath {
		return path
	}
	const half = longestPath/2 - 2
	return path[:half] + "..." + path[len(path)-half:]
}
