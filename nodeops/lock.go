package nodeops

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// FileLock is a file that this process has locked with flock.
type FileLock struct{ *os.File }

// Close unlocks the file before closing it: a child process has a copy of every open file between fork and exec, and
// the kernel keeps a lock as long as there is a copy.
func (l FileLock) Close() error {
	return errors.Join(unix.Flock(int(l.Fd()), unix.LOCK_UN), l.File.Close())
}

// Lock opens a file and locks it. It opens the file for reading, since a file that is open for writing prevents a
// read-only remount of its file system; for writing only on NFS, which requires that for an exclusive lock.
func Lock(open func(flag int) (*os.File, error), how int) (*FileLock, error) {
	f, err := lockAs(open, os.O_RDONLY, how)
	if errors.Is(err, unix.EBADF) {
		f, err = lockAs(open, os.O_RDWR, how)
	}
	if err != nil {
		return nil, err
	}
	return &FileLock{f}, nil
}

func lockAs(open func(flag int) (*os.File, error), flag, how int) (*os.File, error) {
	f, err := open(flag)
	if err != nil {
		return nil, err
	}
	if err := uninterrupted(func() error { return unix.Flock(int(f.Fd()), how) }); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
