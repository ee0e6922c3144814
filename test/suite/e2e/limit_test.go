package e2e

import (
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

func TestLimit_FullVolumeStopsItsPodAlone(t *testing.T) {
	t.Parallel()
	s := begin(t)
	const limit = 64 << 20
	s.Claim("full", "64Mi")
	s.Claim("other", "64Mi")
	s.Pod("neighbour", kube.Mount("other", "/data"))
	s.Pod("greedy", kube.Mount("full", "/data"))
	s.Ready("greedy")
	out := s.Exec("greedy", "sh", "-c", "dd if=/dev/zero of=/data/fill bs=1M count=128 2>&1; stat -c %s /data/fill")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	size, err := strconv.Atoi(lines[len(lines)-1])
	if err != nil || !strings.Contains(out, "No space left on device") {
		t.Fatalf("writing twice the size: %s", out)
	}
	if size > limit || size < limit/2 {
		t.Errorf("%d bytes fitted into a claim of %d", size, limit)
	}
	s.Ready("neighbour")
	s.Exec("neighbour", "sh", "-ec", "head -c 10000000 /dev/zero >/data/file; sync /data/file")
	state := check.Got(s.Client.CoreV1().Nodes().Get(t.Context(), s.Home, metav1.GetOptions{}))(t)
	for _, condition := range state.Status.Conditions {
		want := corev1.ConditionFalse // they name pressures
		if condition.Type == corev1.NodeReady {
			want = corev1.ConditionTrue
		}
		if condition.Status != want {
			t.Errorf("%s is %s: %s", condition.Type, condition.Status, condition.Message)
		}
	}
}
