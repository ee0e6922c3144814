package sanity

import (
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-storage/holdfast/test/rig/csisanity"
)

// handle is an id as the kubelet makes it for an inline volume.
var handle = "csi-" + strings.Repeat("0123456789abcdef", 4)

// inline publishes an inline ephemeral volume at target as the kubelet does.
func (w *world) inline(id, target string, attributes map[string]string, readOnly bool) error {
	return w.inlineAs(id, target, attributes, readOnly, mount(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER))
}

func (w *world) inlineAs(id, target string, attributes map[string]string, readOnly bool, c *csi.VolumeCapability) error {
	volumeContext := map[string]string{
		"csi.storage.k8s.io/ephemeral": "true", "csi.storage.k8s.io/pod.name": "web-0", "csi.storage.k8s.io/pod.namespace": "default",
		"csi.storage.k8s.io/pod.uid": "11-22", "csi.storage.k8s.io/serviceAccount.name": "default",
		"csi.storage.k8s.io/serviceAccount.tokens": csisanity.Secret,
	}
	maps.Copy(volumeContext, attributes)
	_, err := w.NodePublishVolume(w.ctx(), &csi.NodePublishVolumeRequest{
		VolumeId: id, TargetPath: w.path(target), VolumeContext: volumeContext, Readonly: readOnly, VolumeCapability: c,
	})
	return err
}

// attributes ask for 512 MiB; images get a file system that can be that small on every pool.
func (w *world) attributes() map[string]string {
	return map[string]string{"size": "512Mi", "pool": "fast"}
}

func anInlineVolumeLivesAsLongAsItsPod(w *world) {
	for range 2 {
		w.must(w.inline(handle, "target", w.attributes(), false))
	}
	if n := w.mountedAt("target"); n != 1 {
		w.Errorf("%d mounts", n)
	}
	w.write("target", "file", "kept")
	bytes, _ := w.usage(handle, "target")
	if total := bytes.GetTotal(); total < 256*mib || total > 512*mib {
		w.Errorf("total is %d bytes", total)
	}
	w.restart()
	w.must(w.inline(handle, "target", w.attributes(), false))
	w.expectFile("target", "file", "kept")
	w.expectError(w.inline(handle, "second", w.attributes(), false), codes.FailedPrecondition, w.path("target"))
	w.expectGone("second")
	w.expectError(w.inline(handle, "target", w.attributes(), true), codes.Unavailable, "target")
	w.expectError(w.inline(handle, "target", map[string]string{"size": "1Gi"}, false), codes.AlreadyExists, "size")
	for range 2 {
		w.must(w.unpublish(handle, "target"))
	}
	w.expectGone("target")
	if strings.Contains(w.Output(), csisanity.Secret) {
		w.Error("the pod's token is in the log")
	}
	w.nothingLeft()
}

func anInlineVolumeThatCannotBeMountedIsRemovedAtOnce(w *world) {
	w.must(os.WriteFile(w.path("target"), []byte("precious"), 0o600))
	w.expectError(w.inline(handle, "target", w.attributes(), false), codes.FailedPrecondition, "target")
	w.nothingLeft() // the kubelet forgets it
	w.must(os.Remove(w.path("target")))
	w.must(w.unpublish(handle, "target"))
	w.nothingLeft()
	err := w.inlineAs(handle, "target", w.attributes(), false, mount(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, "no_such_flag"))
	if code := status.Code(err); code != codes.FailedPrecondition && code != codes.InvalidArgument {
		w.Errorf("got %v", err)
	}
	w.nothingLeft()
}

func TestInlineVolume_IDIsValidForItAlone(t *testing.T) {
	w := newWorld(t, imageOnXFS, "")
	w.expectError(w.inline("v", "target", nil, false), codes.InvalidArgument, `"v"`, "ephemeral")
	w.expectError(w.inline(handle+"0", "target", nil, false), codes.InvalidArgument, "csi-0123")
	_, err := w.NodePublishVolume(w.ctx(), &csi.NodePublishVolumeRequest{
		VolumeId: handle, StagingTargetPath: w.stagingDir("staging"), TargetPath: w.path("target"), VolumeCapability: mount(multiWriter),
	})
	w.expectError(err, codes.InvalidArgument, "ephemeral")
	w.expectError(w.stage(handle, mount(multiWriter)), codes.InvalidArgument, "volume_id")
	_, err = w.DeleteVolume(w.ctx(), &csi.DeleteVolumeRequest{VolumeId: handle})
	w.expectError(err, codes.InvalidArgument, "volume_id")
	_, err = w.CreateVolume(w.ctx(), w.request(handle))
	w.expectError(err, codes.InvalidArgument, "ephemeral")
	w.nothingLeft()
}
