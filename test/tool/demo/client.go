package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

func (s *story) create(ctx context.Context, name string, source *csi.VolumeContentSource) (string, error) {
	s.FS[name] = "xfs"
	resp, err := s.Create(ctx, name, first, source)
	return fmt.Sprintf("id %s, %d bytes", resp.GetVolume().GetVolumeId(), resp.GetVolume().GetCapacityBytes()), err
}

func (s *story) expand(ctx context.Context, name string, size int64) (string, error) {
	resp, err := s.Expand(ctx, name, size)
	return fmt.Sprintf("%d bytes", resp.GetCapacityBytes()), err
}

func (s *story) snapshot(ctx context.Context, source, name string) (string, error) {
	resp, err := s.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: name, SourceVolumeId: source})
	return fmt.Sprintf("id %s, ready %t", resp.GetSnapshot().GetSnapshotId(), resp.GetSnapshot().GetReadyToUse()), err
}

// end takes a volume off the node and removes it.
func (s *story) end(ctx context.Context, name string) (string, error) {
	if err := s.Detach(ctx, name); err != nil {
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
