package host

import (
	"errors"
	"os"
	"path/filepath"
)

// WriteFile replaces a file whole or not at all, and makes its directory.
func WriteFile(path string, data []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err := errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// Tail returns the last lines of a file, or why there are none.
func Tail(path string, size int64) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err.Error()
	}
	offset := max(info.Size()-size, 0)
	data := make([]byte, info.Size()-offset)
	n, _ := f.ReadAt(data, offset)
	return string(data[:n])
}
