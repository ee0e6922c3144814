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

// removeDepth is how many directories a removal holds open at once; what lies deeper is moved up first.
const removeDepth = 32

// RemoveTree removes a directory with all that is in it, or a file; what is gone already is no error. It follows no
// links and enters no other mount.
//
// However deep and wide the tree is, it takes few descriptors and little memory, in the kernel too, where a directory
// that is open keeps all above it in memory: directories that lie too deep are moved up, to one beside the topmost
// ones. Interrupted, or repeated after a crash, it continues with the rest. Entries that cannot be removed are left,
// and all others are removed; the error names the first.
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

// treeRemoval is a removal under way.
type treeRemoval struct {
	ctx   context.Context
	top   *os.File
	raise raised // where what lies too deep is moved to
	count uint64 // makes names
	left  error  // the first thing that could not be removed
	full  error  // the first thing there was no room to move, since the top directory was looked at
	went  bool   // something was removed or moved since then
}

// raised is a directory directly in the top one.
type raised struct {
	dir  *os.File
	name string // empty where it is the top directory itself
}

// run empties the top directory: in passes, each of which takes what the one before has moved up.
func (r *treeRemoval) run() error {
	for now := "."; ; {
		if now == "." {
			r.full, r.went = nil, false
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
		case r.full != nil && r.went: // by now there may be space
			now = "."
		default:
			return cmp.Or(r.left, r.full)
		}
	}
}

// clear empties a directory, and removes it unless it is the top one. It lists the directory again as long as that
// helps: entries that were added during the removal may not have been listed.
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
		if !went { // what could not be removed or moved is noted already
			return false, nil
		}
	}
}

// clearOnce says whether anything was removed or moved away.
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
			continue // its turn comes
		}
		gone, err := r.entry(dir, name, maybeDir, depth)
		if err != nil {
			return went, err
		}
		went = went || gone
	}
}

// entry removes one entry of a directory. Only an error that ends all is one; what cannot be removed is noted.
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

// note says whether something went well, and remembers the first that did not.
func (r *treeRemoval) note(err error) bool {
	switch {
	case err == nil:
		r.went = true
	case noRoom(err):
		r.full = cmp.Or(r.full, err)
	default:
		r.left = cmp.Or(r.left, err)
	}
	return err == nil
}

func noRoom(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EMLINK)
}

// moveUp moves a directory to one beside the topmost. Where a full disk or a limit leaves no room for that one, it is
// moved to the top itself.
func (r *treeRemoval) moveUp(dir *os.File, name string) error {
	if r.raise.dir == nil {
		if err := r.makeRaise(); noRoom(err) {
			r.raise.dir = r.top
		} else if err != nil {
			return err
		}
	}
	move := func(number string) error {
		return unix.Renameat2(int(dir.Fd()), name, int(r.raise.dir.Fd()), number, unix.RENAME_NOREPLACE)
	}
	err := r.numbered(move)
	if errors.Is(err, unix.EXDEV) { // its user gave it another project id
		if err = disinherit(r.raise.dir); err == nil {
			err = r.numbered(move)
		}
	}
	if err != nil {
		return &os.PathError{Op: "moving", Path: shortPath(dir, name), Err: err}
	}
	if r.raise.name == "" {
		r.full = cmp.Or(r.full, error(unix.ENOSPC)) // the top directory is to be looked at again
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

// numbered calls try with names until one is not taken.
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

// unlinkAt does not mind what is gone already.
func unlinkAt(dir *os.File, name string, flags int) error {
	err := uninterrupted(func() error { return unix.Unlinkat(int(dir.Fd()), name, flags) })
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return &os.PathError{Op: "remove", Path: shortPath(dir, name), Err: err}
}

// openBeneath opens a directory in another one, unless it is a link or something is mounted there.
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

// longestPath bounds what the names of files that are open take: deep in a tree each would have the whole path.
const longestPath = 512

// shortPath is the path of an entry for messages. Of a long one it leaves out the middle.
func shortPath(parent *os.File, name string) string {
	path := parent.Name() + "/" + name
	if len(path) <= longestPath {
		return path
	}
	const half = longestPath/2 - 2
	return path[:half] + "..." + path[len(path)-half:]
}
