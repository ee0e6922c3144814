package upgrade

import (
	"slices"
	"testing"

	core "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

// TestUpgrade_ToAnImageThatExitsIsRolledBack sees that only one node ever has the image.
func TestUpgrade_ToAnImageThatExitsIsRolledBack(t *testing.T) {
	hostfs.Long(t)
	s := begin(t)
	image := s.broken()
	counters := s.count()
	before, nodePods := s.nodePods(), s.recordNodePods()
	u := s.upgrade("exits", v1beta1.StorageUpgradeSpec{Image: image, NodeTimeout: seconds(90)})
	s.followTo(u.Name, v1beta1.StepRollBack)
	tried := s.triedOn(image)
	u = s.fails(u.Name, v1beta1.StepNodes, "node "+tried, "ended with code 2", string(s.image)+" runs again")
	if steps := stepNames(u); !slices.Contains(steps, v1beta1.StepRollBack) || slices.Contains(steps, v1beta1.StepController) {
		t.Errorf("the steps were %v", steps)
	}
	for _, c := range nodePods().complaints {
		t.Error(c)
	}
	for node, uid := range s.nodePods() {
		if (uid == before[node]) == (node == tried) {
			t.Errorf("the image was tried on %s, and the pod of %s was %s and is %s", tried, node, before[node], uid)
		}
	}
	expectUndisturbed(t, counters)
	s.binds("after")
}

// triedOn is the one node that has an image.
func (s *site) triedOn(image v1beta1.Image) (node string) {
	s.t.Helper()
	pods := check.Got(s.podsOf(s.t.Context(), "node"))(s.t)
	with := slices.DeleteFunc(pods, func(p core.Pod) bool { return imageOf(&p) != image })
	if len(with) != 1 {
		s.t.Fatalf("%d nodes have %s, and one was to be tried", len(with), image)
	}
	return with[0].Spec.NodeName
}
