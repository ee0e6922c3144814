package ganesha

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/sys/unix"
)

// diskInterval is the time between two probes of the disk.
const diskInterval = 2 * time.Second

// disk is where the state of the server is, beside the volumes that it serves. A node that is shut out of its Ceph cluster
// still has in memory what it has read, and takes what clients write: a server there must end at once, since another node
// serves the same volumes.
type disk struct {
	dir   string
	probe singleflight.Group // a probe may hang in the kernel; none is begun while one does
}

// refusal returns an error if the disk takes no writes, and none before it is mounted again. One that does not answer
// in time may go on where it was, and one whose file system is full serves: both are no reason to end.
func (d *disk) refusal(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var err error
	select {
	case answer := <-d.probe.DoChan("", func() (any, error) { return nil, writeThrough(filepath.Join(d.dir, "alive")) }):
		err = answer.Err
	case <-ctx.Done():
	}
	if slices.ContainsFunc([]error{unix.EIO, unix.EROFS, unix.ESHUTDOWN, unix.ENXIO, unix.ENODEV}, func(gone error) bool { return errors.Is(err, gone) }) {
		return fmt.Errorf("the disk of the NFS server takes no writes any more; it was shut out of its Ceph cluster, is broken, or the pool below it is full: %w", err)
	}
	return nil
}

// watch returns when the disk refuses, or ctx ends.
func (d *disk) watch(ctx context.Context, limit time.Duration) error {
	for {
		if err := d.refusal(ctx, limit); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(diskInterval):
		}
	}
}

// writeThrough returns when the disk has a new content of a file.
func writeThrough(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%020d\n", time.Now().UnixNano())
	return errors.Join(err, f.Sync(), f.Close())
}
