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

// Socket is a unix listener that recognizes when its socket file was replaced.
type Socket struct {
	net.Listener
	Path string
	made fs.FileInfo
}

// ListenUnix creates a socket with mode 0600. It replaces a socket without a listener, but nothing else.
func ListenUnix(ctx context.Context, path string) (*Socket, error) {
	if err := checkStale(ctx, path); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		// The socket file gets the mode of the socket.
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

// checkStale fails unless a path is free or has a socket that a killed process left.
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

// Ours returns whether the file is still the one that was created.
func (s *Socket) Ours() bool {
	info, err := os.Lstat(s.Path)
	return err == nil && os.SameFile(info, s.made)
}

// Remove removes the file, unless it was replaced.
func (s *Socket) Remove() error {
	if !s.Ours() {
		return nil
	}
	return os.Remove(s.Path)
}
