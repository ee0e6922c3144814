package nodeops

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Socket is a unix listener that knows its own file from one that took its place.
type Socket struct {
	net.Listener
	Path string
	made fs.FileInfo
}

// ListenUnix makes a socket for root alone from its first moment on. It replaces a socket without a listener, and
// nothing else.
func ListenUnix(ctx context.Context, path string) (*Socket, error) {
	if err := checkStale(ctx, path); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		// The file gets the mode of the socket that is bound to it.
		failed := c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(failed, err)
	}}
	l, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	made, err := os.Lstat(path)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &Socket{Listener: l, Path: path, made: made}, nil
}

// checkStale refuses whatever is at a path but a socket that a killed process left.
func checkStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is there and not a socket (%s); remove it first", path, info.Mode())
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err == nil {
		return errors.Join(fmt.Errorf("someone answers at %s already; stop it first", path), conn.Close())
	}
	return nil
}

// Ours says whether the file is still the one that was made.
func (s *Socket) Ours() bool {
	info, err := os.Lstat(s.Path)
	return err == nil && os.SameFile(info, s.made)
}

// Remove takes the file away, unless another process has taken its place.
func (s *Socket) Remove() error {
	if !s.Ours() {
		return nil
	}
	return os.Remove(s.Path)
}
