package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

var capability = &csi.VolumeCapability{
	AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "xfs"}},
	AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
}

func restored(snapshot string) *csi.VolumeContentSource {
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
		Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: snapshot},
	}}
}

func (s *story) create(ctx context.Context, name string, source *csi.VolumeContentSource) (string, error) {
	resp, err := s.CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: first},
		VolumeCapabilities: []*csi.VolumeCapability{capability}, VolumeContentSource: source,
	})
	return fmt.Sprintf("id %s, %d bytes", resp.GetVolume().GetVolumeId(), resp.GetVolume().GetCapacityBytes()), err
}

func (s *story) stage(ctx context.Context, name string) (string, error) {
	if err := os.Mkdir(s.staging(name), 0o750); err != nil {
		return "", err
	}
	_, err := s.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: name, StagingTargetPath: s.staging(name), VolumeCapability: capability})
	return s.staging(name), err
}

func (s *story) publish(ctx context.Context, name string) (string, error) {
	_, err := s.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
		VolumeId: name, StagingTargetPath: s.staging(name), TargetPath: s.target(name), VolumeCapability: capability,
	})
	return s.target(name), err
}

func (s *story) snapshot(ctx context.Context, source, name string) (string, error) {
	resp, err := s.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: name, SourceVolumeId: source})
	return fmt.Sprintf("id %s, ready %t", resp.GetSnapshot().GetSnapshotId(), resp.GetSnapshot().GetReadyToUse()), err
}

func (s *story) grow(ctx context.Context, name string, size int64) (string, error) {
	resp, err := s.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: name, CapacityRange: &csi.CapacityRange{RequiredBytes: size}})
	if err != nil {
		return "", err
	}
	_, err = s.NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{VolumeId: name, VolumePath: s.target(name)})
	return fmt.Sprintf("%d bytes", resp.GetCapacityBytes()), err
}

// end takes a volume off the node and removes it.
func (s *story) end(ctx context.Context, name string) (string, error) {
	if _, err := s.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: name, TargetPath: s.target(name)}); err != nil {
		return "", err
	}
	if _, err := s.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: name, StagingTargetPath: s.staging(name)}); err != nil {
		return "", err
	}
	_, err := s.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: name})
	return "nothing of " + name + " is left", err
}

func (s *story) forget(ctx context.Context, snapshot string) (string, error) {
	_, err := s.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: snapshot})
	return "nothing of " + snapshot + " is left", err
}

// df is what a user sees.
func df(ctx context.Context, path string) (string, error) {
	out, err := exec.CommandContext(ctx, "df", "--output=size,used,avail", "-h", path).CombinedOutput()
	fields := strings.Fields(string(out))
	if err != nil || len(fields) < 3 {
		return "", errors.Join(fmt.Errorf("df %s: %s", path, out), err)
	}
	values := fields[len(fields)-3:]
	return fmt.Sprintf("size %s, used %s, free %s", values[0], values[1], values[2]), nil
}
