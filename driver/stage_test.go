package driver

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// onDisk has volumes that could be mounted.
func onDisk() *scripted {
	b := newScripted()
	b.shows = func(v *backend.Volume) { v.Access.Image = "/nowhere/image" }
	return b
}

func TestStage_VolumeWithoutAllOfItsContentIsRefused(t *testing.T) {
	b := onDisk()
	r := newRig(t, b, func(c *Config) {
		c.CheckComplete = func(_ context.Context, id backend.ID) error {
			if id == "populated" {
				return nil
			}
			return fmt.Errorf("%w: volume %s has only a part of its content", backend.ErrPrecondition, id)
		}
	})
	for _, spec := range []backend.VolumeSpec{{Name: "whole"}, {Name: "part", Incomplete: true}, {Name: "populated", Incomplete: true}} {
		spec.Size.Required = gib
		check.Got(b.Create(t.Context(), spec))(t)
		_, err := r.NodeStageVolume(r.ctx(), &csi.NodeStageVolumeRequest{VolumeId: spec.Name, StagingTargetPath: "/nowhere/s", VolumeCapability: mountCapability("")})
		if spec.Name == "part" {
			expectError(t, err, codes.FailedPrecondition, "only a part of its content")
		} else {
			expectError(t, err, codes.FailedPrecondition, "directory of /nowhere/s") // where it would be staged
		}
	}
}

func TestStage_NothingIsCopiedIntoAVolumeThatHasItsContent(t *testing.T) {
	b := onDisk()
	r := newRig(t, b)
	for _, spec := range []backend.VolumeSpec{{Name: "whole"}, {Name: "part", Incomplete: true}} {
		spec.Size.Required = gib
		check.Got(b.Create(t.Context(), spec))(t)
		request := &csi.NodeStageVolumeRequest{
			VolumeId: spec.Name, StagingTargetPath: "/nowhere/s", VolumeCapability: mountCapability(""), VolumeContext: map[string]string{populatesContext: "true"},
		}
		_, err := r.NodeStageVolume(r.ctx(), request)
		expectError(t, err, codes.FailedPrecondition, map[string]string{"whole": "all of its content", "part": "directory of /nowhere/s"}[spec.Name])
		_, err = r.NodePublishVolume(r.ctx(), &csi.NodePublishVolumeRequest{ // what another pod has staged before etcd was put back
			VolumeId: spec.Name, StagingTargetPath: "/nowhere/s", TargetPath: "/nowhere/t", VolumeCapability: mountCapability(""), VolumeContext: request.VolumeContext,
		})
		expectError(t, err, codes.FailedPrecondition, map[string]string{"whole": "all of its content", "part": "/nowhere/"}[spec.Name])
	}
}

// inCeph has images that are attached to the node of that name.
func inCeph() *scripted {
	b := newScripted()
	b.shows = func(v *backend.Volume) {
		v.Access = backend.Access{RBD: &backend.RBD{Image: backend.RBDImage(v.ID)}}
		v.AttachedTo = map[backend.ID]string{"other": "other", "own": "n", "unknown": ""}[v.ID]
		v.Detached = v.ID == "detached"
	}
	return b
}

func TestStage_ImageThatIsAttachedToAnotherNodeIsRefused(t *testing.T) {
	b := inCeph()
	r := newRig(t, b, func(c *Config) { c.NodeID = "n" })
	for name, want := range map[string]string{"other": "attached to node other", "own": "directory of /nowhere/s", "unknown": "directory of /nowhere/s", "detached": "attached to no node"} {
		check.Got(b.Create(t.Context(), backend.VolumeSpec{Name: name, Size: backend.Size{Required: gib}}))(t)
		_, err := r.NodeStageVolume(r.ctx(), &csi.NodeStageVolumeRequest{VolumeId: name, StagingTargetPath: "/nowhere/s", VolumeCapability: mountCapability("")})
		expectError(t, err, codes.FailedPrecondition, want)
		_, err = r.NodePublishVolume(r.ctx(), &csi.NodePublishVolumeRequest{ // a pod that starts again where it is staged
			VolumeId: name, StagingTargetPath: "/nowhere/s", TargetPath: "/nowhere/t", VolumeCapability: mountCapability(""),
		})
		expectError(t, err, codes.FailedPrecondition, "directory of /nowhere/s")
	}
}

// What is staged is looked at where a kernel has a client: TestGuestFence_StagedVolumeIsStagedAgainForTheNextPod.
func TestPublish_ImageThatIsNotStagedIsStagedUnlessTheNodeIsShutOut(t *testing.T) {
	b := inCeph()
	var out error
	r := newRig(t, b, func(c *Config) {
		c.NodeID = "n"
		c.CephShutOut = func(context.Context) (bool, error) { return out != nil, out }
	})
	publish := func(name string) error {
		dir := t.TempDir()
		_, err := r.NodePublishVolume(r.ctx(), &csi.NodePublishVolumeRequest{
			VolumeId: name, StagingTargetPath: dir, TargetPath: filepath.Join(dir, "target"), VolumeCapability: mountCapability(""),
		})
		return err
	}
	for name, want := range map[string]string{"other": "attached to node other", "own": "has no keys", "unknown": "has no keys"} {
		check.Got(b.Create(t.Context(), backend.VolumeSpec{Name: name, Size: backend.Size{Required: gib}}))(t)
		out = nil
		expectError(t, publish(name), codes.FailedPrecondition, want)
		out = fmt.Errorf("%w: the node is shut out", backend.ErrUnavailable)
		expectError(t, publish(name), codes.Unavailable, "volume "+name+": pool unavailable: the node is shut out")
	}
}
