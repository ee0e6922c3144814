package driver

import (
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
	return filepath.Clean(path), nil
}

// listen makes the socket. It takes the place of one that nobody answers at any more, and of nothing else.
func listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("directory of the socket: %w", err)
	}
	if err := checkStale(path); err != nil {
		return nil, err
	}
	// The socket gets its mode under another name, so that no one can connect in between.
	building := path + ".new"
	if err := checkStale(building); err != nil {
		return nil, err
	}
	if err := os.Remove(building); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: building, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("socket %s (a path may have at most 107 bytes, with .new): %w", path, err)
	}
	l.SetUnlinkOnClose(false)
	err = os.Chmod(building, 0o600)
	if err == nil {
		err = os.Rename(building, path)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close(), os.Remove(building))
	}
	return l, nil
}

// checkStale refuses whatever is not an abandoned socket.
func checkStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is there and not a socket (%s); remove it or choose another endpoint", path, info.Mode())
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		return errors.Join(fmt.Errorf("someone answers at %s; stop it or choose another endpoint", path), conn.Close())
	}
	return nil
}
