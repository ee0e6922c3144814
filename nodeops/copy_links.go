package nodeops

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// hardLinks remembers copied files that have several names, until all names are copied: as links named by inode of the
// source, in a directory beside the copy. There they need no memory, regardless of their number and depth, and do not
// count against a limit of the copy.
type hardLinks struct {
	path string // of that directory
	dir  *os.File
}

// note remembers a file that was copied under its first name.
func (f *hardLinks) note(to, from *node, name string) error {
	if from.Nlink < 2 {
		return nil
	}
	if f.dir == nil {
		if err := os.Mkdir(f.path, 0o700); err != nil {
			return err
		}
		if err := f.open(); err != nil {
			return err
		}
	}
	if err := unix.Linkat(int(to.Fd()), name, int(f.dir.Fd()), inodeName(from), 0); err != nil {
		return fmt.Errorf("noting the first name of %s: %w", from.Name(), err)
	}
	return nil
}

// link adds another name to a file that was copied before. The last name replaces the remembered link, so that a file
// may have as many names as the file system allows.
func (f *hardLinks) link(to, from *node, name string) (bool, error) {
	if from.Nlink < 2 || f.dir == nil {
		return false, nil
	}
	var st unix.Stat_t
	err := unix.Fstatat(int(f.dir.Fd()), inodeName(from), &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT):
		return false, nil
	case err == nil && st.Nlink == from.Nlink:
		err = unix.Renameat2(int(f.dir.Fd()), inodeName(from), int(to.Fd()), name, unix.RENAME_NOREPLACE)
	case err == nil:
		err = unix.Linkat(int(f.dir.Fd()), inodeName(from), int(to.Fd()), name, 0)
	}
	if err != nil {
		return false, fmt.Errorf("linking %s: %w", from.Name(), err)
	}
	return true, nil
}

func inodeName(n *node) string { return strconv.FormatUint(n.Ino, 10) }

func (f *hardLinks) open() error {
	dir, err := os.OpenFile(f.path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	f.dir = dir
	return nil
}

// close also forgets files some of whose names were not found.
func (f *hardLinks) close(ctx context.Context) error {
	if f.dir == nil {
		return nil
	}
	f.dir.Close()
	f.dir = nil
	parent, err := os.OpenRoot(filepath.Dir(f.path))
	if err != nil {
		return err
	}
	defer parent.Close()
	return RemoveTree(context.WithoutCancel(ctx), parent, filepath.Base(f.path))
}
