package cluster

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

func TestFull_PoolWithoutRoomIsNamedAndTheClusterStaysReady(t *testing.T) {
	for name, so := range map[string]*situation{
		"one that has run":      healthy(2),
		"one that begins so":    healthy(2).with(func(s *situation) { s.cluster.Status.Conditions = nil }),
		"every pool of it":      healthy(1),
		"beside one that fails": healthy(2).with(func(s *situation) { s.storageNodes["node2"].Status.Pools[0].Message = "it is read-only" }),
	} {
		full := &so.storageNodes["node1"].Status.Pools[0]
		full.Largest, full.Promised, full.Capacity = resource.Quantity{}, resource.MustParse("20Gi"), resource.MustParse("20Gi")
		got := so.status()
		c := meta.FindStatusCondition(got.Conditions, v1beta1.PoolsFullCondition)
		if c == nil || c.Reason != reasonNoRoom || !strings.HasSuffix(c.Message, ": pool default of node node1, where 20Gi of 20Gi are promised") {
			t.Errorf("%s: the condition is %+v", name, c)
		}
		if ready := meta.IsStatusConditionTrue(got.Conditions, v1beta1.ReadyCondition); ready != (name != "beside one that fails") {
			t.Errorf("%s: the phase is %s, and it is ready %t: %+v", name, got.Phase, ready, got.Conditions)
		}
		so.cluster.Status = got
		full.Largest = resource.MustParse("1Gi")
		if got = so.status(); meta.FindStatusCondition(got.Conditions, v1beta1.PoolsFullCondition) != nil {
			t.Errorf("%s: with room it says %+v", name, got.Conditions)
		}
	}
}
