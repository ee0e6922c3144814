package e2e

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

func TestExpand_VolumeGrowsWhileItIsWritten(t *testing.T) {
	t.Parallel()
	for fsType, sizes := range map[string][2]int{"ext4": {64, 256}, "xfs": {400, 600}} {
		t.Run(fsType, func(t *testing.T) {
			t.Parallel()
			growsWhileWritten(t, fsType, sizes[0], sizes[1])
		})
	}
}

func growsWhileWritten(t *testing.T, fsType string, from, to int) {
	s := begin(t)
	// Its kernel lets root grow an ext4 that is in use.
	node := second(t, allNodes(t))
	s.Claim("data", fmt.Sprint(from, "Mi"), kube.OfClass(class(t, s, with("csi.storage.k8s.io/fstype", fsType))))
	s.Pod("writer", kube.Mount("data", "/data"), kube.OnNode(node), kube.Script(kube.Appender))
	s.Ready("writer")
	written := s.FollowAppender("writer")
	size := func() int {
		fields := strings.Fields(s.Exec("writer", "sh", "-ec", "df -m /data | tail -n 1"))
		mib, err := strconv.Atoi(fields[1])
		if err != nil {
			t.Fatalf("df says %q", fields)
		}
		return mib
	}
	before := size()
	s.Grow("data", fmt.Sprint(to, "Mi"))
	if after := size(); before > from || after < before+(to-from)*3/4 || after > to {
		t.Errorf("it had %d MiB and has %d", before, after)
	}
	written.Another()
	s.ExpectBlocks("writer", written)
	if restarts := s.Ready("writer").Status.ContainerStatuses[0].RestartCount; restarts != 0 {
		t.Errorf("the writer failed %d times", restarts)
	}
}

// expectHealth waits until a volume says that it is healthy, or not and why.
func expectHealth(s *kube.Space, id string, want metav1.ConditionStatus, why string) {
	what := "to say of its health " + string(want) + " " + why
	kube.AwaitOne(s, s.Holdfast("volumes"), id, what, func(v *unstructured.Unstructured) (bool, error) {
		conditions, _, err := unstructured.NestedSlice(v.Object, "status", "conditions")
		return slices.ContainsFunc(conditions, func(c any) bool {
			condition, _ := c.(map[string]any)
			message, _ := condition["message"].(string)
			return condition["type"] == "Healthy" && condition["status"] == string(want) && strings.Contains(message, why)
		}), err
	})
}

// The kubelet asks a node to grow what was grown unused, and FailedPrecondition is the one answer that keeps no pod from it.
func TestAClaimWhoseFileSystemCannotGrowIsUsedAtTheSizeItHas(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.Claim("data", "64Mi", kube.OfClass(class(t, s, with("csi.storage.k8s.io/fstype", "ext4"))))
	sum := s.Run("writer", kube.Mount("data", "/data"), kube.Script(fill))
	s.DeletePod("writer")
	id := s.Volume("data").Spec.CSI.VolumeHandle
	awaitUnstaged(t, s, s.Home, id)
	on := func(mend bool, program string, args ...string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), program, append(args, imageOf(s, id))...).CombinedOutput()
		if exit, failed := errors.AsType[*exec.ExitError](err); err != nil && (!mend || !failed || exit.ExitCode() != 1) { // e2fsck has mended
			t.Fatalf("%s: %v: %s", program, err, out)
		}
	}
	on(false, "debugfs", "-w", "-R", "clri <7>") // where its group descriptors would grow
	claims := s.Client.CoreV1().PersistentVolumeClaims(s.Namespace)
	check.Got(claims.Patch(t.Context(), "data", types.MergePatchType, []byte(`{"spec":{"resources":{"requests":{"storage":"1Gi"}}}}`), metav1.PatchOptions{}))(t)
	kube.AwaitOne(s, s.Client.CoreV1().PersistentVolumes(), s.Volume("data").Name, "to be of 1Gi", func(v *corev1.PersistentVolume) (bool, error) {
		size := v.Spec.Capacity[corev1.ResourceStorage]
		return size.Cmp(resource.MustParse("1Gi")) == 0, nil
	})

	s.Pod("user", kube.Mount("data", "/data"))
	s.Ready("user")
	finds := func(pod string, least, most int) {
		t.Helper()
		if now := s.Exec(pod, "sha256sum", "/data/file"); now != sum {
			t.Errorf("written %q, read %q", sum, now)
		}
		said := strings.TrimSpace(s.Exec(pod, "sh", "-ec", "df -m /data | awk 'NR == 2 { print $2 }'"))
		if size, err := strconv.Atoi(said); err != nil || size < least || size > most {
			t.Errorf("pod %s has %q MiB, want %d to %d", pod, said, least, most)
		}
	}
	finds("user", 32, 64)
	expectHealth(s, id, metav1.ConditionFalse, "1Gi")
	s.AwaitEvent("data", "NotGrown", "1Gi")
	s.DeletePod("user")
	awaitUnstaged(t, s, s.Home, id)

	on(true, "e2fsck", "-f", "-y")
	s.Pod("again", kube.Mount("data", "/data"))
	s.Ready("again")
	finds("again", 900, 1024)
	expectHealth(s, id, metav1.ConditionTrue, "")
	kube.AwaitOne(s, claims, "data", "to have grown", func(c *corev1.PersistentVolumeClaim) (bool, error) {
		size := c.Status.Capacity[corev1.ResourceStorage]
		return size.Cmp(resource.MustParse("1Gi")) == 0, nil
	})
}
