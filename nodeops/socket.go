package nodeops

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
)

// Socket is a unix listener that knows its own file from one that took its place.
type Socket struct {
	net.Listener
	Path string
	made fs.FileInfo
}

// ListenUnix makes a socket for root alone. It takes the place of one at which nobody answers any more, and of nothing
// else.
func ListenUnix(ctx context.Context, path string) (*Socket, error) {
	if err := CheckSocket(ctx, path); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	err = os.Chmod(path, 0o600)
	var made fs.FileInfo
	if err == nil {
		made, err = os.Lstat(path)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close(), os.Remove(path))
	}
	return &Socket{Listener: l, Path: path, made: made}, nil
}

// CheckSocket refuses whatever is at a path but a socket that a killed process left.
func CheckSocket(ctx context.Context, path string) error {
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
