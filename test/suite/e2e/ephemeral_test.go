package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// claimed gives a pod a claim of its own, made from a template.
func claimed(path, size string) kube.PodOption {
	return volume(path, corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)},
			},
		},
	}}})
}

func volume(path string, source corev1.VolumeSource) kube.PodOption {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "scratch", VolumeSource: source})
		c := &p.Spec.Containers[0]
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "scratch", MountPath: path})
	}
}

// overfill writes more than fits, and says how much did in MiB.
const overfill = `dd if=/dev/zero of=/data/fill bs=1M count=200 2>&1 | grep -o 'No space left' || true; du -m /data/fill | cut -f 1`

// expectLimit looks at what overfill says of a volume of 64 MiB.
func expectLimit(t *testing.T, said string) {
	t.Helper()
	lines := strings.Fields(strings.ReplaceAll(said, "No space left", "full"))
	if len(lines) != 2 || lines[0] != "full" || len(lines[1]) != 2 || lines[1] > "64" || lines[1] < "32" {
		t.Errorf("writing 200 MiB into 64: %q", said)
	}
}

func TestInlineVolume_IsCreatedForItsPodLimitedAndDeletedWithIt(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.Pod("user", kube.Inline("/data", map[string]string{"size": "64Mi"}))
	uid := s.Ready("user").UID
	if found := s.Exec("user", "stat", "-c", "%g", "/data"); found != "1000\n" {
		t.Errorf("it belongs to the group %q", found)
	}
	expectLimit(t, s.Exec("user", "sh", "-c", overfill))
	if n := len(inlineOf(t, s, string(uid))); n != 1 {
		t.Errorf("%d volumes on the disk are of the pod", n)
	}
	s.DeletePod("user")
	if left := inlineOf(t, s, string(uid)); len(left) > 0 {
		t.Errorf("after the pod there are %v", left)
	}
	// The same pod again has nothing of the first.
	if found := s.Run("user", kube.Inline("/data", map[string]string{"size": "64Mi"}), kube.Script("ls /data")); strings.Contains(found, "fill") {
		t.Errorf("the next pod found %q", found)
	}
}

// inlineOf names the volumes on the home node's disk that were made for a pod. They have no object: the kubelet asks for
// them and for their end.
func inlineOf(t *testing.T, s *kube.Space, uid string) (ids []string) {
	t.Helper()
	files := check.Got(filepath.Glob(filepath.Join(s.Pools(), "default", "volumes", "*", "meta.json")))(t)
	for _, file := range files {
		if content, err := os.ReadFile(file); err == nil && strings.Contains(string(content), uid) {
			ids = append(ids, filepath.Base(filepath.Dir(file)))
		}
	}
	return ids
}

func TestGenericEphemeralVolume_IsAClaimThatEndsWithItsPod(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.Pod("user", claimed("/data", "64Mi"))
	s.Ready("user")
	expectLimit(t, s.Exec("user", "sh", "-c", overfill))
	volume := s.Volume("user-scratch")
	object := check.Got(s.Holdfast("volumes").Get(t.Context(), volume.Spec.CSI.VolumeHandle, metav1.GetOptions{}))(t)
	s.DeletePod("user")
	kube.AwaitNone(s, s.Client.CoreV1().PersistentVolumeClaims(s.Namespace), metav1.ListOptions{}, "the claim")
	kube.AwaitNone(s, s.Client.CoreV1().PersistentVolumes(), kube.Named(volume.Name), "the persistent volume")
	if _, err := s.Holdfast("volumes").Get(context.WithoutCancel(t.Context()), object.GetName(), metav1.GetOptions{}); err == nil {
		t.Errorf("volume %s is still there", object.GetName())
	}
}
