package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

func TestNode_HasTheVolumesOfItsPods(t *testing.T) {
	t.Parallel()
	s := begin(t)
	nodes := allNodes(t)
	second(t, nodes)
	for _, node := range nodes {
		s.Claim(node, "64Mi")
		s.Pod(node, kube.Mount(node, "/data"), kube.OnNode(node), kube.Script("echo "+node+" >/data/name; sleep infinity"))
	}
	for _, node := range nodes {
		s.Ready(node)
		if at := placed(s.Volume(node)); at != node {
			t.Errorf("the volume of the pod on %s is on %q", node, at)
		}
		// The volume says where its next pod is.
		s.Pod("next-"+node, kube.Mount(node, "/data"), kube.AnyNode, kube.Once,
			kube.Script("until test -s /data/name; do sleep 0.1; done; cat /data/name"))
	}
	for _, node := range nodes {
		if name := s.Result("next-" + node); strings.TrimSpace(name) != node {
			t.Errorf("the volume of %s says %q", node, name)
		}
		pod, err := s.Client.CoreV1().Pods(s.Namespace).Get(t.Context(), "next-"+node, metav1.GetOptions{})
		if err != nil || pod.Spec.NodeName != node {
			t.Errorf("the next pod of the claim of %s runs on %q, %v", node, pod.Spec.NodeName, err)
		}
	}
}

// placed is the node that a volume says it is on.
func placed(volume *corev1.PersistentVolume) string {
	if volume.Spec.NodeAffinity == nil || volume.Spec.NodeAffinity.Required == nil {
		return ""
	}
	for _, term := range volume.Spec.NodeAffinity.Required.NodeSelectorTerms {
		for _, expression := range term.MatchExpressions {
			if expression.Key == "topology.holdfast.dev/node" {
				return strings.Join(expression.Values, " ")
			}
		}
	}
	return ""
}
