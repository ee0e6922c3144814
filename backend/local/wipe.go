package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/nodeops"
)

// The content of a pool's directory.
var (
	keptParts  = []string{string(volumes), string(snapshots)}        // must be empty
	wipedParts = []string{trashDir, buildingDir, string(groups)}     // removed with all content
	poolFiles  = []string{poolFile + ".new", poolFile}               // removed in this order
	diskFiles  = []string{"lost+found", diskFile, diskFile + ".new"} // of the file system and the disk; they stay
)

// Wipe removes a pool that has neither volumes nor snapshots and that no process serves, and prints to out what it
// removes. Other files stay. pool.json is removed last, so that a wipe that was killed can be repeated.
func Wipe(ctx context.Context, path string, out io.Writer) error {
	root, err := os.OpenRoot(path)
	if errors.Is(err, fs.ErrNotExist) {
		_, err = fmt.Fprintf(out, "%s does not exist: there is nothing to remove\n", path)
		return err
	}
	if err != nil {
		return err
	}
	defer root.Close()
	lock, err := lockToWipe(root, path)
	if err != nil {
		return err
	}
	if lock != nil {
		defer lock.Close()
	}
	if err := holdsNoVolume(root, path); err != nil {
		return err
	}
	removed := 0
	for _, part := range wipedParts {
		n, err := empty(ctx, root, part, out)
		removed += n
		if err != nil {
			return err
		}
	}
	for _, name := range slices.Concat(wipedParts, keptParts, poolFiles) {
		switch err := root.Remove(name); {
		case err == nil:
			removed++
			fmt.Fprintln(out, "removed", name)
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	return wiped(root, path, removed, out)
}

// lockToWipe locks the pool against all other processes. A directory without a pool.json to lock may have only files of
// a pool.
func lockToWipe(root *os.Root, path string) (*nodeops.FileLock, error) {
	lock, err := lockPool(root)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		foreign, err := notOfPool(root)
		if err == nil && len(foreign) > 0 {
			err = fmt.Errorf("%s is not a pool: it has no %s and contains %s; nothing was removed", path, poolFile, strings.Join(foreign, ", "))
		}
		return nil, err
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, fmt.Errorf("pool %s is being served (%w); remove it from this node first, in spec.pools or spec.nodeSelectorTerms of the StorageCluster; nothing was removed", path, err)
	}
	return lock, err
}

// notOfPool returns what a pool's directory contains besides the files of a pool.
func notOfPool(root *os.Root) ([]string, error) {
	ours := slices.Concat(wipedParts, keptParts, poolFiles, diskFiles)
	names, err := sortedNames(root, ".")
	return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(ours, name) }), err
}

func holdsNoVolume(root *os.Root, path string) error {
	var found []string
	for _, part := range keptParts {
		names, err := sortedNames(root, part)
		if err != nil {
			return err
		}
		for _, name := range names {
			found = append(found, part+"/"+name)
		}
	}
	if len(found) > 0 {
		return fmt.Errorf("%s contains %s; delete them first; nothing was removed", path, strings.Join(found, ", "))
	}
	return nil
}

// empty removes the content of a directory, and prints it to out.
func empty(ctx context.Context, root *os.Root, dir string, out io.Writer) (removed int, err error) {
	names, err := sortedNames(root, dir)
	if err != nil || len(names) == 0 {
		return 0, err
	}
	at, err := root.OpenRoot(dir)
	if err != nil {
		return 0, err
	}
	defer at.Close()
	for _, name := range names {
		if err := nodeops.RemoveTree(ctx, at, name); err != nil { // users created it, so it may be very deep
			return removed, err
		}
		removed++
		fmt.Fprintln(out, "removed", filepath.Join(dir, name))
	}
	return removed, nil
}

// sortedNames lists a directory that may not exist.
func sortedNames(root *os.Root, dir string) ([]string, error) {
	names, err := readNames(root, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	slices.Sort(names)
	return names, err
}

// wiped syncs the removal to disk, and prints the result to out.
func wiped(root *os.Root, path string, removed int, out io.Writer) error {
	foreign, err := notOfPool(root)
	if err != nil {
		return err
	}
	if len(foreign) > 0 {
		fmt.Fprintln(out, "left alone, since Holdfast did not write it:", strings.Join(foreign, ", "))
	}
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("writing %s to disk: %w", path, err)
	}
	_, err = fmt.Fprintf(out, "%s is wiped: %d removed\n", path, removed)
	return err
}
