package cluster

import (
	"slices"
	"strings"
	"testing"

	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func TestInlineVolumes_InUseButNotAllowedAreReported(t *testing.T) {
	s := healthy(3).was(healthy(3))
	reported := func() *metav1.Condition {
		status := s.status()
		return meta.FindStatusCondition(status.Conditions, v1beta1.EphemeralNotAllowedCondition)
	}
	if c := reported(); c != nil {
		t.Fatalf("without any: %s", c.Message)
	}
	before := s.status()
	s.storageNodes["node1"].Status.InlineVolumes = new(int32)
	s.storageNodes["node2"].Status.InlineVolumes = new(int32(2))
	s.storageNodes["node3"].Status.InlineVolumes = new(int32(1))
	c := reported()
	if c == nil || c.Status != metav1.ConditionTrue {
		t.Fatalf("got %+v", c)
	}
	for _, word := range []string{"3 inline", "node2, node3", "spec.csi.ephemeral", "kubectl patch storageclusters.holdfast.dev holdfast", `"pools":["default"]`} {
		if !strings.Contains(c.Message, word) {
			t.Errorf("%q does not say %q", c.Message, word)
		}
	}
	after := s.status()
	if events := transitions(&before, &after); len(events) != 1 || events[0].reason != v1beta1.EphemeralNotAllowedCondition || events[0].message != c.Message {
		t.Errorf("the events are %v", events)
	}
	s.cluster.Status = after
	s.storageNodes["node3"].Status.InlineVolumes = new(int32(9))
	more := s.status()
	if events := transitions(&after, &more); len(events) > 0 {
		t.Errorf("there are more events: %v", events)
	}
	s.cluster.Spec.CSI.Ephemeral = &v1beta1.EphemeralSpec{Pools: []string{"default"}, MaxSize: resource.MustParse("1Gi")}
	if c := reported(); c != nil {
		t.Errorf("when they are allowed: %s", c.Message)
	}
}

// lifecycle is what the CSIDriver says to the kubelets, and of which object.
func (r *rig) lifecycle() (inline bool, uid string) {
	driver := wait.Get(r, r.theirs.StorageV1().CSIDrivers().Get, "csi.holdfast.dev")
	if driver == nil {
		return false, ""
	}
	return slices.Contains(driver.Spec.VolumeLifecycleModes, storage.VolumeLifecycleEphemeral), string(driver.UID)
}

func TestInlineVolumes_CSIDriverAllowsThemWhileOneExists(t *testing.T) {
	r := running(t, func(s *v1beta1.StorageClusterSpec) {
		s.CSI.Ephemeral = &v1beta1.EphemeralSpec{Pools: []string{"default"}, MaxSize: resource.MustParse("1Gi")}
	})
	if inline, _ := r.lifecycle(); !inline {
		t.Fatal("they do not know those that are allowed")
	}
	const node = "inline-node" // no Node is behind it
	nodes := r.ours.HoldfastV1beta1().StorageNodes()
	check.Got(nodes.Create(t.Context(), &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{}))(t)
	// How many inline volumes the node has, and whether it makes more; nil: its agent is of before.
	reports := func(inline *int32, more *bool) {
		t.Helper()
		wait.Modify(r, nodes.Get, nodes.UpdateStatus, node, func(n *v1beta1.StorageNode) {
			n.Status.InlineVolumes, n.Status.InlineVolumesAllowed = inline, more
		})
	}
	reports(new(int32), new(true))
	_, uid := r.lifecycle()
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.CSI.Ephemeral = nil })
	r.reconciled("holdfast")
	stillKnown := func(while string) {
		t.Helper()
		if inline, now := r.lifecycle(); !inline || now != uid {
			t.Errorf("they do not know them any more, while %s", while)
		}
	}
	stillKnown("the agent of before, which may have made one since, has counted none")
	reports(nil, new(false))
	r.reconciled("holdfast")
	stillKnown("a node has not reported whether it has some")
	reports(nil, nil)
	r.reconciled("holdfast")
	stillKnown("an older agent reports nothing")
	reports(new(int32(2)), new(false))
	r.condition("holdfast", v1beta1.EphemeralNotAllowedCondition, reasonInlineInUse)
	stillKnown("two are in use")
	reports(new(int32), new(false))
	wait.Until(r, "the kubelets knowing none", func() bool { inline, now := r.lifecycle(); return !inline && now != "" })
	r.reconciled("holdfast")
	// What the kubelets do not know is not begun for a node that reports some.
	_, uid = r.lifecycle()
	reports(new(int32(1)), new(false))
	r.condition("holdfast", v1beta1.EphemeralNotAllowedCondition, reasonInlineInUse)
	r.reconciled("holdfast")
	if inline, now := r.lifecycle(); inline || now != uid {
		t.Error("they know them again")
	}
}
