package driver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// SocketPath reads an endpoint such as unix:///run/holdfast/csi.sock.
func SocketPath(endpoint string) (string, error) {
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
	l, err := nodeops.ListenUnix(ctx, path+building)
	if err != nil {
		return nil, err
	}
	if err := os.Rename(path+building, path); err != nil {
		return nil, errors.Join(err, l.Close(), l.Remove())
	}
	return l, nil
}

func checkStale(ctx context.Context, path string) error {
	if err := nodeops.CheckSocket(ctx, path); err != nil {
		return fmt.Errorf("%w, or choose another endpoint", err)
	}
	return nil
}
