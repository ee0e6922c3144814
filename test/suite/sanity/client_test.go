package sanity

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	singleWriter = csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	multiWriter  = csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
	readerOnly   = csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY
)

func mount(mode csi.VolumeCapability_AccessMode_Mode, flags ...string) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{MountFlags: flags}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
	}
}

func block(mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
	}
}

// request asks for a volume of 512 MiB; images get xfs, which any root can grow while it is in use.
func (w *world) request(name string) *csi.CreateVolumeRequest {
	req := &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: 512 * mib},
		VolumeCapabilities: []*csi.VolumeCapability{mount(multiWriter)},
	}
	if w.engine == "image" {
		req.Parameters = map[string]string{"csi.storage.k8s.io/fstype": "xfs"}
	}
	return req
}

func (w *world) create(name string, change func(*csi.CreateVolumeRequest)) *csi.Volume {
	w.Helper()
	req := w.request(name)
	if change != nil {
		change(req)
	}
	resp, err := w.CreateVolume(w.ctx(), req)
	if err != nil {
		w.Fatal(err)
	}
	return resp.GetVolume()
}

// fromVolume asks for a copy.
func fromVolume(id string) *csi.VolumeContentSource {
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: id}}}
}

func (w *world) createBlock(name string) *csi.Volume {
	w.Helper()
	return w.create(name, func(q *csi.CreateVolumeRequest) {
		q.VolumeCapabilities, q.Parameters = []*csi.VolumeCapability{block(multiWriter)}, nil
	})
}

func (w *world) remove(id string) {
	w.Helper()
	if _, err := w.DeleteVolume(w.ctx(), &csi.DeleteVolumeRequest{VolumeId: id}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) path(name string) string { return filepath.Join(w.scratch, name) }

// stagingDir makes the directory, as a caller of the driver must.
func (w *world) stagingDir(name string) string {
	w.Helper()
	dir := w.path(name)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		w.Fatal(err)
	}
	return dir
}

func (w *world) stage(id string, c *csi.VolumeCapability) error {
	w.Helper()
	return w.stageAt(id, w.stagingDir("staging-"+id), c)
}

func (w *world) stageAt(id, path string, c *csi.VolumeCapability) error {
	_, err := w.NodeStageVolume(w.ctx(), &csi.NodeStageVolumeRequest{VolumeId: id, StagingTargetPath: path, VolumeCapability: c})
	return err
}

func (w *world) unstage(id string) error {
	_, err := w.NodeUnstageVolume(w.ctx(), &csi.NodeUnstageVolumeRequest{VolumeId: id, StagingTargetPath: w.path("staging-" + id)})
	return err
}

func (w *world) publish(id, target string, c *csi.VolumeCapability, readOnly bool) error {
	_, err := w.NodePublishVolume(w.ctx(), &csi.NodePublishVolumeRequest{
		VolumeId: id, StagingTargetPath: w.path("staging-" + id), TargetPath: w.path(target), VolumeCapability: c, Readonly: readOnly,
	})
	return err
}

func (w *world) unpublish(id, target string) error {
	_, err := w.NodeUnpublishVolume(w.ctx(), &csi.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: w.path(target)})
	return err
}

// use stages a volume and publishes it at target.
func (w *world) use(id, target string, c *csi.VolumeCapability) {
	w.Helper()
	w.must(w.stage(id, c))
	w.must(w.publish(id, target, c, false))
}

// release takes a volume off the node.
func (w *world) release(id string, targets ...string) {
	w.Helper()
	for _, target := range targets {
		w.must(w.unpublish(id, target))
	}
	w.must(w.unstage(id))
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// expectError fails unless err has the code and its message names each of the words.
func (w *world) expectError(err error, code codes.Code, words ...string) {
	w.Helper()
	if status.Code(err) != code {
		w.Fatalf("got code %s (%v), want %s", status.Code(err), err, code)
	}
	for _, word := range words {
		if message := status.Convert(err).Message(); !strings.Contains(message, word) {
			w.Errorf("message %q does not name %q", message, word)
		}
	}
}

func (w *world) write(target, name, content string) {
	w.Helper()
	w.must(os.WriteFile(filepath.Join(w.path(target), name), []byte(content), 0o644))
}

func (w *world) expectFile(target, name, content string) {
	w.Helper()
	b, err := os.ReadFile(filepath.Join(w.path(target), name))
	if err != nil || string(b) != content {
		w.Fatalf("%s/%s holds %q, %v; want %q", target, name, b, err, content)
	}
}

func (w *world) expectGone(target string) {
	w.Helper()
	if _, err := os.Lstat(w.path(target)); !os.IsNotExist(err) {
		w.Errorf("%s is still there: %v", target, err)
	}
}
