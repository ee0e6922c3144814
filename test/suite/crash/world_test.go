package crash

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/standalone"
)

// world is one pool, the process that serves it, and the paths where its volumes are used.
type world struct {
	*testing.T
	*standalone.Process
	options standalone.Options
	pool    string
	scratch string
	kind    kind
}

// kind says what volumes a world makes.
type kind struct {
	engine string
	fsType string // of an image; empty for a directory
	block  bool
	more   string // of the pool; empty: deleted volumes are removed at once, so that each step of a deletion is passed
}

func newWorld(t *testing.T, binary, pool string, k kind) *world {
	scratch := check.Got(os.MkdirTemp("", "holdfast-crash-"))(t)
	w := &world{T: t, pool: pool, scratch: scratch, kind: k, options: standalone.Options{
		Binary: binary,
		Socket: filepath.Join(scratch, "csi.sock"),
		Pools:  []string{fmt.Sprintf("name=pool,engine=%s,path=%s,%s", k.engine, pool, cmp.Or(k.more, "trashRetention=0s"))},
	}}
	t.Cleanup(func() {
		w.Kill()
		w.unmountAll()
		os.RemoveAll(scratch)
		if t.Failed() {
			t.Log(w.Output())
		}
	})
	w.start()
	return w
}

func (w *world) start(env ...string) {
	w.Helper()
	o := w.options
	o.Env = env
	p, err := standalone.Start(context.Background(), o)
	if err != nil {
		w.Fatal(err)
	}
	w.Process = p
}

// unmountAll ends what a failed test left mounted.
func (w *world) unmountAll() {
	for _, m := range w.mounts() {
		if err := nodeops.Unmount(context.Background(), m); err != nil {
			w.Error(err)
		}
	}
	hostfs.DetachAll(w.T, w.loops())
}

// mounts lists what is mounted in the scratch directory.
func (w *world) mounts() (targets []string) {
	mounts, err := nodeops.Mounts()
	if err != nil {
		w.Error(err)
	}
	for _, m := range mounts {
		if strings.HasPrefix(m.Target, w.scratch+"/") {
			targets = append(targets, m.Target)
		}
	}
	return targets
}

// loops lists the loop devices on files of the pool, deleted ones too.
func (w *world) loops() (devices []string) {
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		w.Error(err)
	}
	for _, f := range files {
		if backing, err := os.ReadFile(f); err == nil && strings.HasPrefix(string(backing), w.pool+"/") {
			devices = append(devices, "/dev/"+strings.Split(f, "/")[3])
		}
	}
	return devices
}

func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), standalone.Patience)
	w.Cleanup(cancel)
	return ctx
}

func (w *world) capability() *csi.VolumeCapability {
	c := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}}
	if w.kind.block {
		c.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	} else {
		c.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: w.kind.fsType}}
	}
	return c
}

const size = 320 << 20 // xfs cannot be much smaller

func (w *world) createRequest(name string, source *csi.VolumeContentSource) *csi.CreateVolumeRequest {
	return &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: size},
		VolumeCapabilities: []*csi.VolumeCapability{w.capability()}, VolumeContentSource: source,
	}
}

func (w *world) staging(id string) string { return filepath.Join(w.scratch, "staging-"+id) }
func (w *world) target(id string) string  { return filepath.Join(w.scratch, "pods", id, "target") }

func (w *world) create(name string) error {
	_, err := w.CreateVolume(w.ctx(), w.createRequest(name, nil))
	return err
}

func (w *world) createFromSnapshot(name, snapshot string) error {
	_, err := w.CreateVolume(w.ctx(), w.createRequest(name, &csi.VolumeContentSource{
		Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: snapshot}},
	}))
	return err
}

func (w *world) clone(name, source string) error {
	_, err := w.CreateVolume(w.ctx(), w.createRequest(name, &csi.VolumeContentSource{
		Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: source}},
	}))
	return err
}

func (w *world) delete(id string) error {
	_, err := w.DeleteVolume(w.ctx(), &csi.DeleteVolumeRequest{VolumeId: id})
	return err
}

func (w *world) snapshot(name, source string) error {
	_, err := w.CreateSnapshot(w.ctx(), &csi.CreateSnapshotRequest{Name: name, SourceVolumeId: source})
	return err
}

func (w *world) deleteSnapshot(id string) error {
	_, err := w.DeleteSnapshot(w.ctx(), &csi.DeleteSnapshotRequest{SnapshotId: id})
	return err
}

func (w *world) group(name string, sources ...string) (*csi.VolumeGroupSnapshot, error) {
	r, err := w.CreateVolumeGroupSnapshot(w.ctx(), &csi.CreateVolumeGroupSnapshotRequest{Name: name, SourceVolumeIds: sources})
	return r.GetGroupSnapshot(), err
}

func (w *world) deleteGroup(id string) error {
	g, err := w.GetVolumeGroupSnapshot(w.ctx(), &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: id})
	var members []string
	if err == nil {
		for _, s := range g.GroupSnapshot.Snapshots {
			members = append(members, s.SnapshotId)
		}
	}
	_, err = w.DeleteVolumeGroupSnapshot(w.ctx(), &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: id, SnapshotIds: members})
	return err
}

func (w *world) expand(id string, to int64) error {
	_, err := w.ControllerExpandVolume(w.ctx(), &csi.ControllerExpandVolumeRequest{
		VolumeId: id, CapacityRange: &csi.CapacityRange{RequiredBytes: to}, VolumeCapability: w.capability(),
	})
	return err
}

func (w *world) stage(id string) error {
	if err := os.MkdirAll(w.staging(id), 0o755); err != nil {
		return err
	}
	_, err := w.NodeStageVolume(w.ctx(), &csi.NodeStageVolumeRequest{
		VolumeId: id, StagingTargetPath: w.staging(id), VolumeCapability: w.capability(),
	})
	return err
}

func (w *world) unstage(id string) error {
	_, err := w.NodeUnstageVolume(w.ctx(), &csi.NodeUnstageVolumeRequest{VolumeId: id, StagingTargetPath: w.staging(id)})
	return err
}

func (w *world) publish(id string) error {
	if err := os.MkdirAll(filepath.Dir(w.target(id)), 0o755); err != nil {
		return err
	}
	_, err := w.NodePublishVolume(w.ctx(), &csi.NodePublishVolumeRequest{
		VolumeId: id, StagingTargetPath: w.staging(id), TargetPath: w.target(id), VolumeCapability: w.capability(),
	})
	return err
}

func (w *world) unpublish(id string) error {
	_, err := w.NodeUnpublishVolume(w.ctx(), &csi.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: w.target(id)})
	return err
}

// must runs steps of a preparation.
func (w *world) must(errs ...error) {
	w.Helper()
	for _, err := range errs {
		if err != nil {
			w.Fatal(err)
		}
	}
}

// use stages and publishes a volume while f runs.
func (w *world) use(id string, f func()) {
	w.Helper()
	w.must(w.stage(id), w.publish(id))
	f()
	w.must(w.unpublish(id), w.unstage(id))
}

func payload(name string) []byte {
	sum := sha256.Sum256([]byte(name))
	return []byte(strings.Repeat(string(sum[:]), 1<<15)) // 1 MiB
}

// file is where a published volume's content is.
func (w *world) file(id string) string {
	if w.kind.block {
		return w.target(id)
	}
	return filepath.Join(w.target(id), "file")
}

// write puts a payload into a published volume and makes it durable.
func (w *world) write(id, name string) {
	w.Helper()
	f, err := os.OpenFile(w.file(id), os.O_WRONLY|os.O_CREATE, 0o600)
	w.must(err)
	defer f.Close()
	_, err = f.Write(payload(name))
	w.must(err, f.Sync())
}

// holds fails unless a published volume holds the payload, by checksum.
func (w *world) holds(id, name string) {
	w.Helper()
	f, err := os.Open(w.file(id))
	w.must(err)
	defer f.Close()
	got := make([]byte, len(payload(name)))
	_, err = io.ReadFull(f, got)
	w.must(err)
	if sha256.Sum256(got) != sha256.Sum256(payload(name)) {
		w.Errorf("volume %s does not hold what was written as %s", id, name)
	}
}

// empty fails unless nothing at all is left: entries, temporary files, trash, mounts, loop devices, promises.
func (w *world) empty() {
	w.Helper()
	for _, dir := range []string{"volumes", "snapshots", "groups", ".tmp", ".trash"} {
		left, err := os.ReadDir(filepath.Join(w.pool, dir))
		w.must(err)
		for _, e := range left {
			w.Errorf("%s is left in %s", e.Name(), dir)
		}
	}
	if left := w.mounts(); len(left) > 0 {
		w.Errorf("left mounted: %v", left)
	}
	if left := w.loops(); len(left) > 0 {
		w.Errorf("left attached: %v", left)
	}
	all, err := w.ListVolumes(w.ctx(), &csi.ListVolumesRequest{})
	w.must(err)
	if len(all.Entries) > 0 {
		w.Errorf("left volumes: %v", all.Entries)
	}
}
