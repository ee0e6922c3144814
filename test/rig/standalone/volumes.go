package standalone

import (
	"context"
	"os"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// Volumes makes volumes of a process and uses them, each on one node. The ID of what it makes is the name.
type Volumes struct {
	*Process
	Dir string            // for staging and publishing
	FS  map[string]string // the file system by the volume's name, of a volume that has one of its own and is no copy
}

// Source is a snapshot that a new volume begins with, or a volume.
func Source(snapshot, volume string) *csi.VolumeContentSource {
	if snapshot != "" {
		return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
			Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: snapshot},
		}}
	}
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
		Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: volume},
	}}
}

func (v *Volumes) capability(name string) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: v.FS[name]}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
}

// Create makes a volume; without a source it is empty.
func (v *Volumes) Create(ctx context.Context, name string, size int64, source *csi.VolumeContentSource) (*csi.CreateVolumeResponse, error) {
	return v.CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: size},
		VolumeCapabilities: []*csi.VolumeCapability{v.capability(name)}, VolumeContentSource: source,
	})
}

// Stage makes the staging directory, as a caller of the driver does, and stages a volume there.
func (v *Volumes) Stage(ctx context.Context, name string) error {
	if err := os.Mkdir(v.staging(name), 0o755); err != nil {
		return err
	}
	_, err := v.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
		VolumeId: name, StagingTargetPath: v.staging(name), VolumeCapability: v.capability(name),
	})
	return err
}

// Publish publishes a volume that is staged at Target.
func (v *Volumes) Publish(ctx context.Context, name string) error {
	_, err := v.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
		VolumeId: name, StagingTargetPath: v.staging(name), TargetPath: v.Target(name), VolumeCapability: v.capability(name),
	})
	return err
}

// Detach undoes Publish and Stage.
func (v *Volumes) Detach(ctx context.Context, name string) error {
	if _, err := v.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: name, TargetPath: v.Target(name)}); err != nil {
		return err
	}
	if _, err := v.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: name, StagingTargetPath: v.staging(name)}); err != nil {
		return err
	}
	return os.Remove(v.staging(name))
}

// Expand grows a volume that is published.
func (v *Volumes) Expand(ctx context.Context, name string, size int64) (*csi.ControllerExpandVolumeResponse, error) {
	room := &csi.CapacityRange{RequiredBytes: size}
	r, err := v.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{
		VolumeId: name, CapacityRange: room, VolumeCapability: v.capability(name),
	})
	if err != nil || !r.GetNodeExpansionRequired() {
		return r, err
	}
	_, err = v.NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{
		VolumeId: name, VolumePath: v.Target(name), StagingTargetPath: v.staging(name),
		CapacityRange: room, VolumeCapability: v.capability(name),
	})
	return r, err
}

func (v *Volumes) staging(name string) string { return filepath.Join(v.Dir, "staging-"+name) }

// Target is where a volume is mounted once it is published.
func (v *Volumes) Target(name string) string { return filepath.Join(v.Dir, "target-"+name) }
