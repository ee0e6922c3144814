//go:build ceph

package ceph

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/driver"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/csisanity"
)

func TestNodeOfController_PassesCSISanity(t *testing.T) {
	withoutGroups := csisanity.Reasons()
	withoutGroups["GroupController"] = "pools in Ceph take no snapshots of groups, and the service is not announced"
	for name, test := range map[string]struct {
		engine, accessType string
		reasons            map[string]string
	}{
		"rbd": {"rbd", "mount", withoutGroups}, "rbd, block": {"rbd", "block", withoutGroups}, "cephfs": {"cephfs", "mount", withoutGroups},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, w := onGuest(t)
			d := nodeOfController(ctx, t, w, test.engine)
			csisanity.Run(t, csisanity.Request{Socket: d.socket, Scratch: t.TempDir(), AccessType: test.accessType}, test.reasons)
			nothingMapped(t)
			d.checkLog(t)
		})
	}
}

// TestNodeOfController_GrowsWhatIsInUse grows volumes while a file, or their device, is open.
func TestNodeOfController_GrowsWhatIsInUse(t *testing.T) {
	for name, test := range map[string]struct {
		mode   backend.Mode
		fsType string
	}{
		"ext4": {backend.Filesystem, "ext4"}, "xfs": {backend.Filesystem, "xfs"}, "btrfs": {backend.Filesystem, "btrfs"}, "block": {backend.Block, ""},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, w := onGuest(t)
			s := nodeOfController(ctx, t, w, "rbd")
			n, c := &node{T: t, ctx: ctx, NodeClient: s.NodeClient, dir: t.TempDir()}, capability(test.mode, singleWriter)
			var parameters map[string]string
			if test.fsType != "" {
				parameters = map[string]string{"csi.storage.k8s.io/fstype": test.fsType}
			}
			created := check.Got(s.CreateVolume(ctx, &csi.CreateVolumeRequest{
				Name: "grows-" + name, CapacityRange: &csi.CapacityRange{RequiredBytes: 512 * mib}, VolumeCapabilities: []*csi.VolumeCapability{c}, Parameters: parameters,
			}))(t)
			id := created.GetVolume().GetVolumeId()
			check.OK(t, errors.Join(n.stage(id, c), n.publish(id, c)))
			expectWatcher(ctx, t, id)
			n.growTo(s, id, c, gib)
			check.OK(t, errors.Join(n.unpublish(id), n.unstage(id)))
			nothingMapped(t)
			check.Got(s.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: id}))(t)
		})
	}
}

// expectWatcher expects of the controller to see the client of the kernel under the address that the node records.
func expectWatcher(ctx context.Context, t *testing.T, id string) {
	t.Helper()
	_, clients, err := driver.CephVolumesInUse(ctx, driver.DefaultName, nil)
	if err != nil || len(clients) != 1 {
		t.Fatalf("the kernel's clients are %v, %v", clients, err)
	}
	d := &distant{volumes: controllerOf(t, "rbd").Volumes}
	if seen := check.Got(d.clientOf(ctx, backend.ID(id), ""))(t); seen != clients[0].Address {
		t.Errorf("the controller sees the client %q, and the kernel is %q", seen, clients[0].Address)
	}
	if seen := check.Got(d.clientOf(ctx, backend.ID(id), clients[0].Address))(t); seen != "" {
		t.Errorf("beside the kernel that is known the controller sees %q", seen)
	}
}

// growTo grows a published volume, of which a file stays open, and sees that the node can use all of it.
func (n *node) growTo(s *served, id string, c *csi.VolumeCapability, size int64) {
	n.Helper()
	path := n.target(id)
	if c.GetMount() != nil {
		path = filepath.Join(path, "file")
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	check.OK(n, err)
	defer f.Close()
	grown := &csi.CapacityRange{RequiredBytes: size}
	n.twice("growing", func() error {
		_, err := s.ControllerExpandVolume(n.ctx, &csi.ControllerExpandVolumeRequest{VolumeId: id, CapacityRange: grown, VolumeCapability: c})
		return err
	})
	n.twice("growing on the node", func() error {
		_, err := s.NodeExpandVolume(n.ctx, &csi.NodeExpandVolumeRequest{VolumeId: id, VolumePath: n.target(id), StagingTargetPath: n.staging(id), CapacityRange: grown, VolumeCapability: c})
		return err
	})
	stats, err := s.NodeGetVolumeStats(n.ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: id, VolumePath: n.target(id)})
	if err != nil || stats.GetUsage()[0].GetTotal() < size*8/10 || stats.GetUsage()[0].GetTotal() > size {
		n.Errorf("its size is %v, %v", stats, err)
	}
	content := fmt.Appendf(nil, "holdfast %s", id)
	at := size*3/4 - int64(len(content)) // past what it was made with
	if _, err := f.WriteAt(content, at); err != nil {
		n.Fatalf("writing past the size that it had: %v", err)
	}
	check.OK(n, f.Sync())
	if got := get(n.T, path, at, len(content)); string(got) != string(content) {
		n.Errorf("it reads %q", got)
	}
}
