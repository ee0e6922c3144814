package nodeops

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// Replace atomically replaces the content of a file in a directory: after a crash of the host it is the old or the new
// one. A crash may leave NAME.new. It is removed and not truncated: it could be a link to another file, and its removal needs no sync.
func Replace(dir *os.Root, name string, data []byte) error {
	fresh := name + ".new"
	if err := dir.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := WriteNew(dir, fresh, data); err != nil {
		return err
	}
	if err := dir.Rename(fresh, name); err != nil {
		return err
	}
	return SyncDir(dir, filepath.Dir(name))
}

// ReplaceFile is Replace for a path.
func ReplaceFile(path string, data []byte) error {
	return in(filepath.Dir(path), func(dir *os.Root) error { return Replace(dir, filepath.Base(path), data) })
}

// WriteNew creates a file and syncs its content, but not its name.
func WriteNew(dir *os.Root, name string, data []byte) error {
	f, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// SyncDir syncs the names in a directory to disk. Of a file it syncs the content.
func SyncDir(dir *os.Root, name string) error {
	d, err := dir.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// SyncFiles syncs the files in a directory, and their names, to disk. It does so at once, so that the file system commits once.
func SyncFiles(dir *os.Root) error {
	names, err := fs.ReadDir(dir.FS(), ".")
	if err != nil {
		return err
	}
	all := []string{"."}
	for _, entry := range names {
		if entry.Type().IsRegular() {
			all = append(all, entry.Name())
		}
	}
	errs := make([]error, len(all))
	var syncs sync.WaitGroup
	for i, name := range all {
		syncs.Go(func() { errs[i] = SyncDir(dir, name) })
	}
	syncs.Wait()
	return errors.Join(errs...)
}

// RemoveFile removes a file and syncs the removal to disk.
func RemoveFile(path string) error {
	return in(filepath.Dir(path), func(dir *os.Root) error {
		if err := dir.Remove(filepath.Base(path)); err != nil {
			return err
		}
		return SyncDir(dir, ".")
	})
}

func in(dir string, do func(*os.Root) error) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	return errors.Join(do(root), root.Close())
}
