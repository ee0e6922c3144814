package nodeops

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Lock opens a file and locks it as flock does, until it is closed. It is open for reading, since one that is open for
// writing keeps its file system from being mounted read-only; only on NFS, which locks nothing else, for writing.
func Lock(open func(flag int) (*os.File, error), how int) (*os.File, error) {
	f, err := lockAs(open, os.O_RDONLY, how)
	if errors.Is(err, unix.EBADF) {
		f, err = lockAs(open, os.O_RDWR, how)
	}
	return f, err
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
