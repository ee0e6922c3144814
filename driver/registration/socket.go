package registration

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// connectSoon tries a socket that is about to appear again within moments, not after seconds.
var connectSoon = grpc.WithConnectParams(grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
	MinConnectTimeout: time.Second,
})

// socket is a listener that knows its own file from one that took its place.
type socket struct {
	net.Listener
	path string
	made fs.FileInfo
}

// listen takes the place of a socket that nobody answers at any more, and of nothing else. The kubelet sees the
// file come and go: that is what makes it register the driver anew.
func listen(ctx context.Context, path string) (*socket, error) {
	if err := removeStale(ctx, path); err != nil {
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
	return &socket{Listener: l, path: path, made: made}, nil
}

func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is there and not a socket (%s); remove it", path, info.Mode())
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err == nil {
		return errors.Join(fmt.Errorf("someone answers at %s already; stop it, a driver is announced once on a host", path), conn.Close())
	}
	return os.Remove(path)
}

// remove withdraws the driver, unless another process has taken the place.
func (s *socket) remove() error {
	if !s.ours() {
		return nil
	}
	return os.Remove(s.path)
}

// ours says whether the socket is still the one that was made.
func (s *socket) ours() bool {
	info, err := os.Lstat(s.path)
	return err == nil && os.SameFile(info, s.made)
}
