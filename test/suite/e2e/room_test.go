package e2e

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

func TestCapacity_PodIsScheduledWhereItsVolumeFits(t *testing.T) {
	t.Parallel()
	s := begin(t)
	other := second(t, allNodes(t))
	size := pool(t, s, other, "capacity") + 1 // what is free there changes while other tests run
	if free := pool(t, s, s.Home, "available"); free < size {
		t.Fatalf("%s has %d bytes free, and the test needs %d there", s.Home, free, size)
	}
	s.Claim("data", resource.NewQuantity(size, resource.BinarySI).String())
	s.Pod("user", kube.Mount("data", "/data"), kube.Preferring(other))
	if node := s.Ready("user").Spec.NodeName; node != s.Home {
		t.Errorf("the pod with %d bytes runs on %s", size, node)
	}
}

// pool is an amount that a node says of its first pool.
func pool(t *testing.T, s *kube.Space, node, field string) int64 {
	t.Helper()
	n := check.Got(s.Holdfast("storagenodes").Get(t.Context(), node, metav1.GetOptions{}))(t)
	pools, _, _ := unstructured.NestedSlice(n.Object, "status", "pools")
	pool, _ := pools[0].(map[string]any)
	said, _, _ := unstructured.NestedString(pool, field)
	amount, err := resource.ParseQuantity(said)
	if err != nil {
		t.Fatalf("%s says of its pool %v: %v", node, pool, err)
	}
	return amount.Value()
}
