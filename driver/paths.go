package driver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-storage/holdfast/backend"
)

// parsePath checks a path from outside by its form.
func parsePath(field, path string) error {
	switch {
	case path == "":
		return fmt.Errorf("%w: %s is missing", backend.ErrInvalid, field)
	case !filepath.IsAbs(path):
		return fmt.Errorf("%w %s %s: it must be absolute", backend.ErrInvalid, field, backend.Quote(path))
	case slices.Contains(strings.Split(path, "/"), ".."), filepath.Clean(path) == "/", strings.Contains(path, "\x00"):
		return fmt.Errorf("%w %s %s: it must not be / or contain .. or NUL", backend.ErrInvalid, field, backend.Quote(path))
	}
	return nil
}

// resolve returns path as the kernel's mount table has it: directories above it may be links, itself not. The error
// is fs.ErrNotExist when the directory above it is missing.
func resolve(path string) (string, error) {
	path = filepath.Clean(path)
	parent, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return "", fmt.Errorf("%w: directory of %s: %w", backend.ErrPrecondition, path, err)
	}
	return filepath.Join(parent, filepath.Base(path)), nil
}

// checkDirectory refuses everything but a directory.
func checkDirectory(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %s is missing; the caller must make this directory", backend.ErrPrecondition, path)
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%w: %s must be a directory and is of type %s", backend.ErrPrecondition, path, kind(info))
	}
	return nil
}

// makeTarget makes the directory or file that a volume is published over. What an attempt before left there is used
// if it is empty; anything else is refused and left alone. undo removes what was made.
func makeTarget(path string, mode backend.Mode) (undo func(), err error) {
	if mode == backend.Block {
		var f *os.File
		if f, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); err == nil {
			err = f.Close()
		}
	} else {
		err = os.Mkdir(path, 0o750)
	}
	if err == nil {
		return func() { os.Remove(path) }, nil
	}
	if !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("making the target: %w", err)
	}
	return func() {}, checkTarget(path, mode)
}

func checkTarget(path string, mode backend.Mode) error {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return err
	case mode == backend.Block && info.Mode().IsRegular() && info.Size() == 0:
		return nil
	case mode == backend.Block:
		return fmt.Errorf("%w: target %s of a block volume must be missing or an empty file, and is of type %s, %d bytes", backend.ErrPrecondition, path, kind(info), info.Size())
	case !info.IsDir():
		return fmt.Errorf("%w: target %s must be missing or an empty directory, and is of type %s", backend.ErrPrecondition, path, kind(info))
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("%w: target %s is not mounted but holds %s and more; check what wrote there", backend.ErrPrecondition, path, backend.Quote(entries[0].Name()))
	}
	return nil
}

// removeTarget removes the directory or file that was published over, once nothing is mounted there. Anything that
// is not empty is not ours.
func removeTarget(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.IsDir() && (!info.Mode().IsRegular() || info.Size() > 0) {
		return fmt.Errorf("%w: target %s is not mounted and of type %s, %d bytes; it was not made here and is left alone", backend.ErrPrecondition, path, kind(info), info.Size())
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: target %s is not mounted but cannot be removed: %w", backend.ErrPrecondition, path, err)
	}
	return nil
}

func kind(info fs.FileInfo) string {
	switch t := info.Mode().Type(); t {
	case 0:
		return "file"
	case fs.ModeSymlink:
		return "symbolic link"
	case fs.ModeDir:
		return "directory"
	default:
		return t.String()
	}
}
