package e2e

import (
	"fmt"
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

func TestNode_MissingImageIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	s := begin(t)
	for _, node := range allNodes(t) {
		s.Pod(node, kube.OnNode(node), func(p *corev1.Pod) {
			p.Spec.Containers[0].Image, p.Spec.Containers[0].ImagePullPolicy = "registry.k8s.io/none:1", corev1.PullAlways
		})
		s.AwaitEvent(node, "Failed", "http://127.0.0.1:1/v2/none/", "connection refused")
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

func TestDNS_ServiceIsFoundByNameFromEveryNode(t *testing.T) {
	t.Parallel()
	s := begin(t)
	nodes := allNodes(t)
	// The client is there before the server, and before the node knows where to find it.
	const script = "until timeout 2 wget -qO /dev/shm/answer $SHORT 2>/dev/null; do sleep 0.5; done; cat /dev/shm/answer; timeout 5 wget -qO - $FULL"
	for i, node := range nodes {
		s.Pod("server-"+node, kube.OnNode(node), kube.Label("serves", node), kube.Script(
			"mkdir /dev/shm/www; echo "+node+" >/dev/shm/www/index.html; httpd -f -p 8080 -h /dev/shm/www"))
		s.Service("web-"+node, "serves", node, 8080)
		server := neighbour(nodes, i)
		s.Pod("client-"+node, kube.OnNode(node), kube.Once, kube.Script(script), kube.Env("SHORT", "http://web-"+server),
			kube.Env("FULL", fmt.Sprintf("http://web-%s.%s.svc.cluster.local", server, s.Namespace)))
	}
	for i, node := range nodes {
		server := neighbour(nodes, i)
		if answer := s.Result("client-" + node); answer != strings.Repeat(server+"\n", 2) {
			t.Errorf("on %s the service of %s answers %q", node, server, answer)
		}
	}
}

// neighbour is another node, or the same where there is only one.
func neighbour(nodes []string, i int) string { return nodes[(i+1)%len(nodes)] }
