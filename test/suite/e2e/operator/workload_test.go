package operator

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

func TestCSI_DisabledServersCreatePlainVolumesAndServeThemOnceEnabled(t *testing.T) {
	hostfs.Long(t)
	s := begin(t)
	_, client := twoNodes(t)
	a := administer(t)
	directory := filepath.Join("/var/lib", s.Namespace)
	s.BeforeEnd(func(context.Context) error { return os.RemoveAll(directory) }) // after the server

	a.change(func(spec *v1beta1.StorageClusterSpec) { spec.CSI.Enabled = new(bool) })
	s.Serve("shared", s.Home, map[string]any{"storage": map[string]any{"hostPath": directory}})
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: s.Namespace}, Provisioner: "nfs.holdfast.dev", Parameters: map[string]string{"nfsServer": s.Namespace + "/shared"},
	}
	classes := s.Client.StorageV1().StorageClasses()
	check.Got(classes.Create(t.Context(), class, metav1.CreateOptions{}))(t)
	s.BeforeEnd(func(ctx context.Context) error { return classes.Delete(ctx, class.Name, metav1.DeleteOptions{}) })
	s.Claim("files", "32Mi", kube.OfClass(class.Name), kube.AccessMode(corev1.ReadWriteMany))
	s.Pod("writer", kube.Mount("files", "/data"), kube.OnNode(client), kube.Script("while sleep 0.5; do echo line >>/data/log; sync /data/log; echo written; done"))
	s.Ready("writer")

	a.change(func(spec *v1beta1.StorageClusterSpec) { spec.CSI.Enabled = new(true) })
	had := strings.Count(s.Log("writer"), "\n")
	s.FirstLines("writer", had+5)
	s.Claim("more", "32Mi", kube.OfClass(class.Name), kube.AccessMode(corev1.ReadWriteMany))
	s.Run("more", kube.Mount("more", "/data"), kube.OnNode(client), kube.Script("touch /data/file"))
	kube.AwaitNone(a.Space, a.Client.CoreV1().Pods(kube.System), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=loop-sets"}, "the pods that only allocate loop devices")
}
