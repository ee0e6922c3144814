package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// inGroup gives a pod's volumes to a group.
func inGroup(group int64, policy corev1.PodFSGroupChangePolicy) kube.PodOption {
	return func(p *corev1.Pod) {
		p.Spec.SecurityContext.FSGroup, p.Spec.SecurityContext.FSGroupChangePolicy = &group, &policy
	}
}

func TestFSGroup_VolumeBelongsToTheGroupOfItsPod(t *testing.T) {
	t.Parallel()
	for _, fsType := range []string{"ext4", "xfs"} {
		t.Run(fsType, func(t *testing.T) {
			t.Parallel()
			s := begin(t)
			s.Claim("data", "400Mi", kube.OfClass(class(t, s, with("csi.storage.k8s.io/fstype", fsType))))
			// The user is in no group of the file system but by the pod's fsGroup.
			inline := kube.Inline("/scratch", map[string]string{"size": "64Mi"})
			first := s.Run("first", kube.Mount("data", "/data"), inline, inGroup(4321, corev1.FSGroupChangeOnRootMismatch), kube.Script(`
				mkdir /data/dir
				echo content >/data/dir/file
				chmod 600 /data/dir/file
				stat -c '%g %A' /data
				stat -c %g /data/dir /data/dir/file /scratch`))
			if want := "4321 drwxrwsr-x\n4321\n4321\n4321\n"; first != want {
				t.Errorf("the first pod found %q, want %q", first, want)
			}
			s.DeletePod("first")
			// A root that is right is not walked again: what only the owner may read stays so.
			again := s.Run("again", kube.Mount("data", "/data"), inGroup(4321, corev1.FSGroupChangeOnRootMismatch),
				kube.Script("stat -c '%g %a' /data /data/dir/file"))
			if want := "4321 2775\n4321 600\n"; again != want {
				t.Errorf("another pod of the group found %q, want %q", again, want)
			}
			s.DeletePod("again")
			// Another group takes all of it over, what only the owner could read included.
			second := s.Run("second", kube.Mount("data", "/data"), inGroup(8765, corev1.FSGroupChangeAlways),
				as(2000), kube.Script("stat -c '%g %a' /data/dir/file; cat /data/dir/file"))
			if want := "8765 660\ncontent\n"; second != want {
				t.Errorf("the pod of another group found %q, want %q", second, want)
			}
		})
	}
}

// as makes a pod run as another user.
func as(user int64) kube.PodOption {
	return func(p *corev1.Pod) { p.Spec.SecurityContext.RunAsUser = &user }
}

func TestFSGroup_BlockVolumeIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.Claim("disk", "64Mi", kube.Block)
	found := s.Run("user", kube.Device("disk", "/dev/disk"), inGroup(4321, corev1.FSGroupChangeAlways), kube.Script("stat -c '%u %F' /dev/disk"))
	if !strings.Contains(found, "block special file") || !strings.HasPrefix(found, "0 ") {
		t.Errorf("the device is %q", found)
	}
}
