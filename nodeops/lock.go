package nodeops

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// FileLock is a file that this process has locked as flock does.
type FileLock struct{ *os.File }

// Close unlocks the file before it closes it: a command that is starting has a copy of every open file until its exec,
// and the kernel keeps a lock for as long as there is a copy.
func (l FileLock) Close() error {
	return errors.Join(unix.Flock(int(l.Fd()), unix.LOCK_UN), l.File.Close())
}

// Lock opens a file and locks it. It is open for reading, since one that is open for writing keeps its file system from
// being mounted read-only; only on NFS, which locks nothing else, for writing.
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
