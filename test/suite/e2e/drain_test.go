package e2e

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// lingering writes until it is asked to end, and goes on writing until it may.
const lingering = `
	end() {
		echo asked to end
		until test -e /data/may-end; do date >>/data/log; sleep 0.1; done
		sha256sum /data/log >/data/sum
		sync /data/sum
		exit 0
	}
	trap end TERM
	while :; do date >>/data/log; sleep 0.1; done`

// patient lets a pod take its time to end.
func patient(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(600)) }

// lastOnNode starts a pod that uses a volume of a node, drains the node, and returns the volume when the pod has been
// asked to end and still runs. No other test has pods there.
func lastOnNode(t *testing.T, s *kube.Space, node string) *corev1.PersistentVolume {
	t.Helper()
	aloneWithNodes(t)
	s.Claim("data", "64Mi")
	s.Pod("last", kube.Mount("data", "/data"), kube.OnNode(node), patient, kube.Script(lingering))
	s.Ready("last")
	s.Drain(node)
	if line := s.FirstLines("last", 1); line[0] != "asked to end" {
		t.Fatalf("the pod says %q", line)
	}
	return s.Volume("data")
}

// expectEnd lets the last pod end, and sees that it ends well and leaves nothing on its node.
func expectEnd(t *testing.T, s *kube.Space, node string, volume *corev1.PersistentVolume) {
	t.Helper()
	s.Exec("last", "touch", "/data/may-end")
	kube.AwaitNone(s, s.Client.CoreV1().Pods(s.Namespace), kube.Named("last"), "the last pod")
	awaitUnstaged(t, s, node, volume.Spec.CSI.VolumeHandle)
	if out := s.Run("reader", kube.Mount("data", "/data"), kube.OnNode(node), kube.TolerateAll, kube.Script("sha256sum -c /data/sum")); out != "/data/log: OK\n" {
		t.Errorf("the pod left %q", out)
	}
}

// awaitUnstaged waits until nothing of a volume is left on a node. The kubelet unstages it after the last pod that used it
// is gone.
func awaitUnstaged(t *testing.T, s *kube.Space, node, id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), kube.Patience)
	defer cancel()
	s.Eventually(ctx, "an end of mounts and loop devices on "+node, func(context.Context) error {
		if left := s.OnHost(node, "grep -h "+id+" /proc/self/mountinfo /sys/block/loop*/loop/backing_file || true"); left != "" {
			return errors.New(left)
		}
		return nil
	})
}

func TestDrain_NodePodStaysUntilTheLastVolumeIsUnpublished(t *testing.T) {
	hostfs.Long(t)
	t.Parallel()
	s := begin(t)
	node := secondNode(t)
	volume := lastOnNode(t, s, node)
	before := s.NodePod(node, "").UID // not earlier: other tests made other node pods until now
	// All others leave, for a taint that they do not tolerate as well.
	s.Pod("other", kube.OnNode(node))
	s.Ready("other")
	s.Taint(node, "e2e.holdfast.dev/repair", "")
	kube.AwaitNone(s, s.Client.CoreV1().Pods(s.Namespace), kube.Named("other"), "the pod that does not tolerate the taint")
	kube.Await(s, s.Client.CoreV1().Pods(kube.System), metav1.ListOptions{FieldSelector: "spec.nodeName=" + node}, "only the node pod to be left",
		func(pods []*corev1.Pod) (bool, error) { return len(pods) == 1 && pods[0].UID == before, nil })
	expectEnd(t, s, node, volume)
	if after := s.NodePod(node, "").UID; after != before {
		t.Error("there is another node pod")
	}
}

func TestDrain_PodEndsCleanlyThoughTheNodePodIsEvicted(t *testing.T) {
	hostfs.Long(t)
	t.Parallel()
	s := begin(t)
	node := secondNode(t)
	volume := lastOnNode(t, s, node)
	evicted := evictNodePod(s, node)
	s.Exec("last", "sh", "-c", "date >>/data/log") // without a node pod too
	s.NodePod(node, evicted)
	expectEnd(t, s, node, volume)
}

// TestDrain_PodThatEndsWithoutANodePodIsUnpublishedWhenOneReturns is the worst order: the pod has ended before the node
// pod that knew of its volume has a successor.
func TestDrain_PodThatEndsWithoutANodePodIsUnpublishedWhenOneReturns(t *testing.T) {
	hostfs.Long(t)
	t.Parallel()
	s := begin(t)
	node := secondNode(t)
	volume := lastOnNode(t, s, node)
	evictNodePod(s, node)
	expectEnd(t, s, node, volume)
}

func evictNodePod(s *kube.Space, node string) types.UID {
	pod := s.NodePod(node, "")
	s.Evict(pod.Namespace, pod.Name)
	return pod.UID
}
