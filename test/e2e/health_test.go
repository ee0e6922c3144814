package e2e

import (
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-storage/holdfast/test/e2e/kube"
	"github.com/holdfast-storage/holdfast/test/hostfs"
)

// TestAVolumeThatIsDamagedSaysSoUntilItIsRepaired takes until the agent has looked at its disk twice.
func TestAVolumeThatIsDamagedSaysSoUntilItIsRepaired(t *testing.T) {
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
		if err := damage.do(imageOf(s, ids[claim])); err != nil {
			t.Fatal(err)
		}
	}
	for claim, damage := range damages {
		expectHealth(s, ids[claim], metav1.ConditionFalse, damage.says)
		s.AwaitClusterEvent(ids[claim], "Damaged", damage.says)
		if err := os.WriteFile(imageOf(s, ids[claim]), images[claim], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for claim := range damages {
		expectHealth(s, ids[claim], metav1.ConditionTrue, "")
		s.AwaitClusterEvent(ids[claim], "Repaired", s.Home)
		if sum := s.Run("reader-of-"+claim, kube.Mount(claim, "/data"), kube.Script("sha256sum /data/file")); sum != sums[claim] {
			t.Errorf("written %q, read %q", sums[claim], sum)
		}
	}
}

// expectHealth waits until a volume says that it is healthy, or not and why.
func expectHealth(s *kube.Space, id string, want metav1.ConditionStatus, why string) {
	kube.AwaitOne(s, s.Holdfast("volumes"), id, "to say of its health "+string(want)+" "+why, func(v *unstructured.Unstructured) (bool, error) {
		conditions, _, _ := unstructured.NestedSlice(v.Object, "status", "conditions")
		for _, c := range conditions {
			if c, _ := c.(map[string]any); c["type"] == "Healthy" {
				message, _ := c["message"].(string)
				return c["status"] == string(want) && strings.Contains(message, why), nil
			}
		}
		return false, nil
	})
}
