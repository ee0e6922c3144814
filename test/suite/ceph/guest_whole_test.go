//go:build ceph

package ceph

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-storage/holdfast/backend"
	engine "github.com/holdfast-storage/holdfast/backend/ceph"
	"github.com/holdfast-storage/holdfast/backend/ceph/cephfs"
	"github.com/holdfast-storage/holdfast/backend/ceph/rbd"
	"github.com/holdfast-storage/holdfast/driver"
	"github.com/holdfast-storage/holdfast/test/rig/ceph"
	"github.com/holdfast-storage/holdfast/test/rig/csisanity"
)

// connect connects to the cluster as a user, and closes all that is registered with it when the test ends.
func connect(t *testing.T, w world, c engine.Config) *engine.Cluster {
	t.Helper()
	c.Monitors, c.FSID, c.Key, c.Patience = []string{"v2:" + w.Monitor}, w.FSID, engine.Key(w.Keys[c.User]), time.Minute
	cluster, err := engine.New(c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	closedWith(t, cluster.Close)
	return cluster
}

func closedWith(t *testing.T, closing func(context.Context) error) {
	t.Cleanup(func() {
		if err := closing(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func openRBD(t *testing.T, w world) *rbd.Backend {
	t.Helper()
	b, err := rbd.Open(t.Context(), connect(t, w, engine.Config{User: "manager", Pool: pool}), rbd.Config{TrashRetention: rbd.NoTrash}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	closedWith(t, b.Close)
	return b
}

func openCephFS(t *testing.T, w world) *cephfs.Backend {
	t.Helper()
	b, err := cephfs.Open(t.Context(), connect(t, w, engine.Config{User: "holdfast", FileSystem: ceph.FileSystem}), cephfs.Config{TrashRetention: cephfs.NoTrash}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	closedWith(t, b.Close)
	return b
}

// TestWholeGuest_PassesCSISanity has controller and node in one process, as csi-sanity requires.
func TestWholeGuest_PassesCSISanity(t *testing.T) {
	images := func(t *testing.T, w world) backend.Backend { return openRBD(t, w) }
	directories := func(t *testing.T, w world) backend.Backend { return openCephFS(t, w) }
	withoutGroups := csisanity.Reasons()
	withoutGroups["GroupController"] = "Ceph takes no snapshots of several subvolumes at one instant, and the service is not announced"
	for name, test := range map[string]struct {
		open       func(*testing.T, world) backend.Backend
		accessType string
		reasons    map[string]string
	}{
		"rbd": {images, "mount", csisanity.Reasons()}, "rbd, block": {images, "block", csisanity.Reasons()}, "cephfs": {directories, "mount", withoutGroups},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, w := onGuest(t)
			b := test.open(t, w)
			s := serve(ctx, t, w, driver.Config{Services: driver.AllServices, Backend: b})
			csisanity.Run(t, csisanity.Request{Socket: s.socket, Scratch: t.TempDir(), AccessType: test.accessType}, test.reasons)
			nothingMapped(t)
			left, err := b.List(ctx)
			if err != nil || len(left) > 0 {
				t.Errorf("the pool holds %+v, %v", left, err)
			}
			if bytes.Contains(s.log.Bytes(), []byte(csisanity.Secret)) || bytes.Contains(s.log.Bytes(), []byte("code=Internal")) {
				t.Error("a secret, or a defect, is in the log")
			}
		})
	}
}

// TestWholeGuest_GrowsWhatIsInUse grows volumes while a file, or their device, is open.
func TestWholeGuest_GrowsWhatIsInUse(t *testing.T) {
	for name, test := range map[string]struct {
		mode   backend.Mode
		fsType string
	}{
		"ext4": {backend.Filesystem, "ext4"}, "xfs": {backend.Filesystem, "xfs"}, "btrfs": {backend.Filesystem, "btrfs"}, "block": {backend.Block, ""},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, w := onGuest(t)
			s := serve(ctx, t, w, driver.Config{Services: driver.AllServices, Backend: openRBD(t, w)})
			n, c := &node{T: t, ctx: ctx, NodeClient: s.NodeClient, dir: t.TempDir()}, capability(test.mode, singleWriter)
			var parameters map[string]string
			if test.fsType != "" {
				parameters = map[string]string{"csi.storage.k8s.io/fstype": test.fsType}
			}
			created, err := s.CreateVolume(ctx, &csi.CreateVolumeRequest{
				Name: "grows-" + name, CapacityRange: &csi.CapacityRange{RequiredBytes: 512 * mib}, VolumeCapabilities: []*csi.VolumeCapability{c}, Parameters: parameters,
			})
			if err != nil {
				t.Fatal(err)
			}
			id := created.GetVolume().GetVolumeId()
			if err := errors.Join(n.stage(id, c), n.publish(id, c)); err != nil {
				t.Fatal(err)
			}
			n.growTo(s, id, c, gib)
			if err := errors.Join(n.unpublish(id), n.unstage(id)); err != nil {
				t.Fatal(err)
			}
			nothingMapped(t)
			if _, err := s.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: id}); err != nil {
				t.Fatal(err)
			}
		})
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
	if err != nil {
		n.Fatal(err)
	}
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
	if err := f.Sync(); err != nil {
		n.Fatal(err)
	}
	if got := get(n.T, path, at, len(content)); string(got) != string(content) {
		n.Errorf("it reads %q", got)
	}
}
