package e2e

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// chosen makes a claim as the scheduler leaves it when it has chosen a node.
func chosen(node string) kube.ClaimOption {
	return func(c *corev1.PersistentVolumeClaim) {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, "volume.kubernetes.io/selected-node", node)
	}
}

// TestFullNode_SecondOfTwoPodsForTheSameSpaceIsScheduledElsewhere begins where the scheduler has chosen one
// node for both, by what it knew of the node's room before it knew of either. Not parallel: others' volumes come and go.
func TestFullNode_SecondOfTwoPodsForTheSameSpaceIsScheduledElsewhere(t *testing.T) {
	s := begin(t)
	nodes := allNodes(t)
	full := second(t, nodes)
	size := resource.NewQuantity(pool(t, s, full, "available")/10*6, resource.BinarySI).String()
	names := []string{"a", "b"}
	for _, name := range names {
		s.Claim(name, size, chosen(full))
	}
	for _, name := range names {
		s.Pod(name, kube.Mount(name, "/data"), kube.Preferring(full))
	}
	var at []string
	for _, name := range names {
		node := s.Ready(name).Spec.NodeName
		if on := placed(s.Volume(name)); on != node {
			t.Errorf("pod %s runs on %s, and its volume is on %s", name, node, on)
		}
		at = append(at, node)
	}
	first := slices.Index(at, full)
	if first < 0 || at[1-first] == full {
		t.Fatalf("the pods run on %v, and %s has room for one", at, full)
	}
	s.AwaitEvent(names[1-first], "ProvisioningFailed", "ResourceExhausted", full, "are free")
}
