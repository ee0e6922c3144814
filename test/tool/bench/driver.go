package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-storage/holdfast/test/rig/standalone"
)

// driver is the program that is measured.
type driver struct {
	*standalone.Process
	dir       string // for staging and publishing
	image     bool
	fs        map[string]string
	volumes   map[string]*csi.Volume
	snapshots map[string]string
}

var _ subject = (*driver)(nil)

func newDriver(p *standalone.Process, t target, dir string) *driver {
	return &driver{
		Process: p, dir: dir, image: t.engine == "image",
		fs: map[string]string{}, volumes: map[string]*csi.Volume{}, snapshots: map[string]string{},
	}
}

// capability is that of a volume with the file system it was made with; a copy's is that of its source.
func (d *driver) capability(name string) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: d.fs[name]}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
}

func (d *driver) make(ctx context.Context, name string, size int64, source *csi.VolumeContentSource) error {
	r, err := d.CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: size},
		VolumeCapabilities: []*csi.VolumeCapability{d.capability(name)}, VolumeContentSource: source,
	})
	if err != nil {
		return err
	}
	d.volumes[name] = r.GetVolume()
	return nil
}

func (d *driver) create(ctx context.Context, name string, size int64, fs string) error {
	if d.image {
		d.fs[name] = fs
	}
	return d.make(ctx, name, size, nil)
}

func (d *driver) restore(ctx context.Context, name, snapshot string, size int64) error {
	return d.make(ctx, name, size, &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
		Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: d.snapshots[snapshot]},
	}})
}

func (d *driver) clone(ctx context.Context, name, of string, size int64) error {
	return d.make(ctx, name, size, &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
		Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: d.id(of)},
	}})
}

func (d *driver) snapshot(ctx context.Context, name, of string) error {
	r, err := d.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: name, SourceVolumeId: d.id(of)})
	if err != nil {
		return err
	}
	d.snapshots[name] = r.GetSnapshot().GetSnapshotId()
	return nil
}

func (d *driver) attach(ctx context.Context, name string) error {
	// The caller makes the staging directory, the driver the target.
	if err := os.Mkdir(d.staging(name), 0o755); err != nil {
		return err
	}
	_, err := d.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
		VolumeId: d.id(name), StagingTargetPath: d.staging(name), VolumeCapability: d.capability(name),
		VolumeContext: d.volumes[name].GetVolumeContext(),
	})
	if err != nil {
		return err
	}
	_, err = d.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
		VolumeId: d.id(name), StagingTargetPath: d.staging(name), TargetPath: d.path(name), VolumeCapability: d.capability(name),
		VolumeContext: d.volumes[name].GetVolumeContext(),
	})
	return err
}

func (d *driver) detach(ctx context.Context, name string) error {
	_, err := d.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: d.id(name), TargetPath: d.path(name)})
	if err != nil {
		return err
	}
	_, err = d.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: d.id(name), StagingTargetPath: d.staging(name)})
	if err != nil {
		return err
	}
	return os.Remove(d.staging(name))
}

func (d *driver) expand(ctx context.Context, name string, size int64) error {
	want := &csi.CapacityRange{RequiredBytes: size}
	r, err := d.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: d.id(name), CapacityRange: want, VolumeCapability: d.capability(name)})
	if err != nil || !r.GetNodeExpansionRequired() {
		return err
	}
	_, err = d.NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{
		VolumeId: d.id(name), VolumePath: d.path(name), StagingTargetPath: d.staging(name), CapacityRange: want, VolumeCapability: d.capability(name),
	})
	return err
}

func (d *driver) remove(ctx context.Context, name string) error {
	_, err := d.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: d.id(name)})
	return err
}

func (d *driver) removeSnapshot(ctx context.Context, name string) error {
	_, err := d.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: d.snapshots[name]})
	return err
}

func (d *driver) id(name string) string      { return d.volumes[name].GetVolumeId() }
func (d *driver) staging(name string) string { return filepath.Join(d.dir, "staging-"+name) }
func (d *driver) path(name string) string    { return filepath.Join(d.dir, "target-"+name) }
