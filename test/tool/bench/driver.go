package main

import (
	"context"
	"errors"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-storage/holdfast/test/rig/standalone"
)

// driver is the program that is measured.
type driver struct {
	standalone.Volumes
	image bool
}

func (d *driver) do(ctx context.Context, c call) (err error) {
	switch c.verb {
	case "create":
		if d.image {
			d.FS[c.name] = c.fs
		}
		_, err = d.Create(ctx, c.name, c.size, nil)
	case "restore":
		_, err = d.Create(ctx, c.name, c.size, standalone.Source(c.of, ""))
	case "clone":
		_, err = d.Create(ctx, c.name, c.size, standalone.Source("", c.of))
	case "attach":
		if err := d.Stage(ctx, c.name); err != nil {
			return err
		}
		return d.Publish(ctx, c.name)
	case "snapshot":
		_, err = d.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: c.name, SourceVolumeId: c.of})
	case "expand":
		_, err = d.Expand(ctx, c.name, c.size)
	case "detach":
		return d.Detach(ctx, c.name)
	case "remove":
		_, err = d.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: c.name})
	case "removeSnapshot":
		_, err = d.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: c.name})
	default:
		return errors.New("no call does this")
	}
	return err
}

func (d *driver) path(name string) string { return d.Target(name) }
