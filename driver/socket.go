package driver

import (
	"context"
	"fmt"
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

// longestSocket is what the kernel takes.
const longestSocket = 107

// listen makes the socket, and its directory.
func listen(ctx context.Context, path string) (*nodeops.Socket, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("directory of the socket: %w", err)
	}
	s, err := nodeops.ListenUnix(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("%w, or choose another endpoint", err)
	}
	return s, nil
}
