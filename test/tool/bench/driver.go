package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-storage/holdfast/test/rig/standalone"
)

// driver is the program that is measured. The id of what it makes is the name.
type driver struct {
	*standalone.Process
	dir   string // for staging and publishing
	image bool
	fs    map[string]string // of images by their names; a copy's is that of its source
}

func (d *driver) do(ctx context.Context, c call) (err error) {
	switch c.verb {
	case "create":
		if d.image {
			d.fs[c.name] = c.fs
		}
		return d.create(ctx, c, nil)
	case "restore":
		return d.create(ctx, c, &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
			Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: c.of},
		}})
	case "clone":
		return d.create(ctx, c, &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
			Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: c.of},
		}})
	case "attach":
		return d.attach(ctx, c.name)
	case "snapshot":
		_, err = d.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: c.name, SourceVolumeId: c.of})
	case "expand":
		return d.expand(ctx, c)
	case "detach":
		return d.detach(ctx, c.name)
	case "remove":
		_, err = d.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: c.name})
	case "removeSnapshot":
		_, err = d.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: c.name})
	default:
		return errors.New("no call does this")
	}
	return err
}

func (d *driver) capability(name string) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: d.fs[name]}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
}

func (d *driver) create(ctx context.Context, c call, source *csi.VolumeContentSource) error {
	_, err := d.CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name: c.name, CapacityRange: &csi.CapacityRange{RequiredBytes: c.size},
		VolumeCapabilities: []*csi.VolumeCapability{d.capability(c.name)}, VolumeContentSource: source,
	})
	return err
}

func (d *driver) attach(ctx context.Context, name string) error {
	// The caller makes the staging directory, the driver the target.
	if err := os.Mkdir(d.staging(name), 0o755); err != nil {
		return err
	}
	if _, err := d.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
		VolumeId: name, StagingTargetPath: d.staging(name), VolumeCapability: d.capability(name),
	}); err != nil {
		return err
	}
	_, err := d.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
		VolumeId: name, StagingTargetPath: d.staging(name), TargetPath: d.path(name), VolumeCapability: d.capability(name),
	})
	return err
}

func (d *driver) detach(ctx context.Context, name string) error {
	if _, err := d.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: name, TargetPath: d.path(name)}); err != nil {
		return err
	}
	if _, err := d.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: name, StagingTargetPath: d.staging(name)}); err != nil {
		return err
	}
	return os.Remove(d.staging(name))
}

// expand is of a volume that is attached.
func (d *driver) expand(ctx context.Context, c call) error {
	size := &csi.CapacityRange{RequiredBytes: c.size}
	r, err := d.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{
		VolumeId: c.name, CapacityRange: size, VolumeCapability: d.capability(c.name),
	})
	if err != nil || !r.GetNodeExpansionRequired() {
		return err
	}
	_, err = d.NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{
		VolumeId: c.name, VolumePath: d.path(c.name), StagingTargetPath: d.staging(c.name),
		CapacityRange: size, VolumeCapability: d.capability(c.name),
	})
	return err
}

func (d *driver) staging(name string) string { return filepath.Join(d.dir, "staging-"+name) }
func (d *driver) path(name string) string    { return filepath.Join(d.dir, "target-"+name) }
