package cluster_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"testing"
	"testing/synctest"

	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/inmemory"
)

const (
	mib  = 1 << 20
	gib  = 1 << 30
	node = "node-a"
)

// world is a cluster whose backend is tested.
type world struct{ *inmemory.Cluster }

func newWorld(t *testing.T) *world  { return &world{inmemory.New(t)} }
func realWorld(t *testing.T) *world { return &world{inmemory.Real(t)} }

// inBubble runs a test of a cluster whose backend has not started yet.
func inBubble(t *testing.T, test func(*world)) {
	synctest.Test(t, func(t *testing.T) { test(newWorld(t)) })
}

// attached makes the VolumeAttachment of a PersistentVolume.
func (w *world) attached(volume, node, pv string) {
	w.Helper()
	all := w.Theirs.StorageV1().VolumeAttachments()
	name := fmt.Sprintf("csi-%x", sha256.Sum256([]byte(volume+v1beta1.DriverName+node))) // as the attacher of Kubernetes names it
	check.Got(all.Create(w.Context(), &storage.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storage.VolumeAttachmentSpec{
		Attacher: v1beta1.DriverName, NodeName: node, Source: storage.VolumeAttachmentSource{PersistentVolumeName: &pv},
	}}, metav1.CreateOptions{}))(w)
	w.Cleanup(func() { _ = all.Delete(context.Background(), name, metav1.DeleteOptions{}) })
}
