//go:build linux && !client

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/holdfast-storage/holdfast/driver"
	"github.com/holdfast-storage/holdfast/operator/snapshots"
)

// showSnapshotter creates the socket for csi-snapshotter when the kinds of snapshots exist. csi-snapshotter checks for
// the kinds of groups only once, when it has reached the driver, and would not use them if Holdfast installed them
// later.
func (c *controller) showSnapshotter(clients *clients, log *slog.Logger) (part, error) {
	socket, err := driver.SocketPath(c.driver.Endpoint)
	if err != nil {
		return nil, err
	}
	link, err := driver.SocketPath(c.snapshotterEndpoint)
	if err != nil {
		return nil, fmt.Errorf("--snapshotter-endpoint: %w", err)
	}
	if link == socket {
		return nil, fmt.Errorf("--snapshotter-endpoint %s is --endpoint: it must be another one: %w", c.snapshotterEndpoint, errUsage)
	}
	target, err := filepath.Rel(filepath.Dir(link), socket)
	if err != nil {
		return nil, fmt.Errorf("--snapshotter-endpoint: %w", err)
	}
	return func(ctx context.Context) error {
		if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a process before this one
			return fmt.Errorf("--snapshotter-endpoint: %w", err)
		}
		if err := snapshots.Await(ctx, clients.dynamic); err != nil {
			return nil //nolint:nilerr // it was to end
		}
		if err := os.Symlink(target, link); err != nil {
			return fmt.Errorf("--snapshotter-endpoint: %w", err)
		}
		log.Info("the kinds of snapshots exist, and csi-snapshotter may start", "endpoint", c.snapshotterEndpoint)
		<-ctx.Done()
		return nil
	}, nil
}
