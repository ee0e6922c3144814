package nodeops

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Replace makes a file below a directory hold data: after a crash of the host it is the old or the new one, never a
// part. What a crash leaves is NAME.new.
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

// ReplaceFile is Replace by path.
func ReplaceFile(path string, data []byte) error {
	return in(filepath.Dir(path), func(dir *os.Root) error { return Replace(dir, filepath.Base(path), data) })
}

// WriteNew makes a file that is on the disk when it returns, but for its name.
func WriteNew(dir *os.Root, name string, data []byte) error {
	f, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// SyncDir brings the names in a directory to the disk.
func SyncDir(dir *os.Root, name string) error {
	d, err := dir.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// RemoveFile removes a file whose absence is on the disk when it returns.
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
