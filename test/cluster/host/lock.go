package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Lock waits until this process alone holds the file. The lock ends with the process at the latest; unlock removes the
// file too.
func Lock(ctx context.Context, file string, limit time.Duration) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return nil, err
	}
	var held *os.File
	err = Until(ctx, limit, func() error {
		held, err = tryLock(file)
		return err
	})
	if err != nil {
		return nil, err
	}
	return func() {
		_ = os.Remove(file)
		_ = held.Close()
	}, nil
}

func tryLock(file string) (*os.File, error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, Final(err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("%s is held by another process", file)
	}
	if err == nil && !sameFile(f, file) {
		err = fmt.Errorf("%s was removed by its last holder", file)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// sameFile reports whether the path still names the open file: a lock on a removed one excludes no other process.
func sameFile(f *os.File, path string) bool {
	held, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(path)
	return err == nil && os.SameFile(held, named)
}
