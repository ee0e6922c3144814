package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-storage/holdfast/backend"
)

// socketPath reads an endpoint such as unix:///run/holdfast/csi.sock.
func socketPath(endpoint string) (string, error) {
	path, ok := strings.CutPrefix(endpoint, "unix:")
	path = "/" + strings.TrimLeft(path, "/")
	if !ok || path == "/" || strings.HasSuffix(path, "/") {
		return "", fmt.Errorf("endpoint %s: it must be a unix socket such as unix:///run/holdfast/csi.sock", backend.Quote(endpoint))
	}
	path = filepath.Clean(path)
	if len(path) > longestSocket {
		return "", fmt.Errorf("endpoint %s: the path of a socket may have %d bytes here, this one has %d", backend.Quote(endpoint), longestSocket, len(path))
	}
	return path, nil
}

// building is the end of the socket's name while it is made, and longestSocket what that leaves of the 107 bytes that
// the kernel takes.
const (
	building      = ".new"
	longestSocket = 107 - len(building)
)

// listen makes the socket. It takes the place of one that nobody answers at any more, and of nothing else.
func listen(ctx context.Context, path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("directory of the socket: %w", err)
	}
	if err := checkStale(ctx, path); err != nil {
		return nil, err
	}
	// The socket gets its mode under another name, so that no one can connect in between.
	nascent := path + building
	if err := checkStale(ctx, nascent); err != nil {
		return nil, err
	}
	if err := os.Remove(nascent); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: nascent, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	err = os.Chmod(nascent, 0o600)
	if err == nil {
		err = os.Rename(nascent, path)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close(), os.Remove(nascent))
	}
	return l, nil
}

// checkStale refuses whatever is not an abandoned socket.
func checkStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is there and not a socket (%s); remove it or choose another endpoint", path, info.Mode())
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err == nil {
		return errors.Join(fmt.Errorf("someone answers at %s; stop it or choose another endpoint", path), conn.Close())
	}
	return nil
}
