package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// TestHealth_DamagedVolumeIsReportedUntilItIsRepaired takes until the agent has looked at its disk twice.
func TestHealth_DamagedVolumeIsReportedUntilItIsRepaired(t *testing.T) {
	hostfs.Long(t)
	t.Parallel()
	s := begin(t)
	damages := map[string]struct {
		do   func(image string) error
		says string
	}{
		"cut":  {func(image string) error { return os.Truncate(image, 16<<20) }, "holds 16777216 bytes of 67108864"},
		"gone": {os.Remove, "cannot be read"},
	}
	sums, ids, images := map[string]string{}, map[string]string{}, map[string][]byte{}
	for claim, damage := range damages {
		s.Claim(claim, "64Mi")
		sums[claim] = s.Run("writer-of-"+claim, kube.Mount(claim, "/data"), kube.Script(fill))
		s.DeletePod("writer-of-" + claim)
		ids[claim] = s.Volume(claim).Spec.CSI.VolumeHandle
		expectHealth(s, ids[claim], metav1.ConditionTrue, "")
		var err error
		if images[claim], err = os.ReadFile(imageOf(s, ids[claim])); err != nil {
			t.Fatal(err)
		}
		check.OK(t, damage.do(imageOf(s, ids[claim])))
	}
	for claim, damage := range damages {
		expectHealth(s, ids[claim], metav1.ConditionFalse, damage.says)
		s.AwaitClusterEvent(ids[claim], "Damaged", damage.says)
		check.OK(t, os.WriteFile(imageOf(s, ids[claim]), images[claim], 0o600))
	}
	for claim := range damages {
		expectHealth(s, ids[claim], metav1.ConditionTrue, "")
		s.AwaitClusterEvent(ids[claim], "Repaired", s.Home)
		if sum := s.Run("reader-of-"+claim, kube.Mount(claim, "/data"), kube.Script("sha256sum /data/file")); sum != sums[claim] {
			t.Errorf("written %q, read %q", sums[claim], sum)
		}
	}
}

func TestHealth_ErrorsOfAVolumeInUseAreReportedToItsPod(t *testing.T) {
	t.Parallel()
	s := begin(t)
	for claim, meet := range map[string]struct {
		reason string
		error  func(image, device string)
	}{
		"files":  {"FileSystemErrors", func(_, device string) { hostfs.MeetError(t, device) }},
		"device": {"DeviceErrors", func(image, device string) { hostfs.FailReading(t, image, device) }},
	} {
		s.Claim(claim, "64Mi")
		s.Pod(claim, kube.Mount(claim, "/data"))
		s.Ready(claim)
		id := s.Volume(claim).Spec.CSI.VolumeHandle
		expectHealth(s, id, metav1.ConditionTrue, "")
		devices, err := nodeops.LoopsOf(imageOf(s, id))
		if err != nil || len(devices) != 1 {
			t.Fatalf("volume %s is attached to %v, %v", id, devices, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), kube.Patience)
		defer cancel()
		s.Eventually(ctx, "the errors in volume "+id+" to be seen", func(ctx context.Context) error {
			meet.error(imageOf(s, id), devices[0]) // again: the kernel does not log each one
			v, err := s.Holdfast("volumes").Get(ctx, id, metav1.GetOptions{})
			if err == nil && !saysOfHealth(v, metav1.ConditionFalse, "errors") {
				err = fmt.Errorf("it is %v", v.Object["status"])
			}
			return err
		})
		if e := s.AwaitEvent(claim, meet.reason, "claim "+claim, id); e.InvolvedObject.Kind != "Pod" {
			t.Errorf("the event is about %+v, not the pod", e.InvolvedObject)
		}
		s.DeletePod(claim)
		s.Pod(claim, kube.Mount(claim, "/data")) // which mounts it again
		s.Ready(claim)
		expectHealth(s, id, metav1.ConditionTrue, "")
	}
}

// expectHealth waits until a volume says that it is healthy, or not and why.
func expectHealth(s *kube.Space, id string, want metav1.ConditionStatus, why string) {
	kube.AwaitOne(s, s.Holdfast("volumes"), id, "to say of its health "+string(want)+" "+why, func(v *unstructured.Unstructured) (bool, error) {
		return saysOfHealth(v, want, why), nil
	})
}

func saysOfHealth(v *unstructured.Unstructured, want metav1.ConditionStatus, why string) bool {
	conditions, _, _ := unstructured.NestedSlice(v.Object, "status", "conditions")
	for _, c := range conditions {
		if c, _ := c.(map[string]any); c["type"] == "Healthy" {
			message, _ := c["message"].(string)
			return c["status"] == string(want) && strings.Contains(message, why)
		}
	}
	return false
}
