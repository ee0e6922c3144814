package upgrade

import (
	"testing"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// TestUpgrade_PodsKeepWritingDuringIt goes back to the release before and, driven by that one, to this one. The
// second upgrade is there from the beginning, and waits for its turn.
func TestUpgrade_PodsKeepWritingDuringIt(t *testing.T) {
	hostfs.Long(t)
	s := begin(t)
	earlier := s.earlier()
	counters := s.count()
	nodePods := s.recordNodePods()
	back := s.upgrade("back", v1beta1.StorageUpgradeSpec{Image: earlier})
	s.followTo(back.Name, v1beta1.StepPullImage)
	forth := s.upgrade("forth", v1beta1.StorageUpgradeSpec{Image: s.image})
	s.waitsFor(forth, back)

	s.followTo(back.Name, v1beta1.StepNodes)
	if c := s.storageCluster(); !c.Spec.Paused || c.Annotations[v1beta1.PausedByAnnotation] != back.Name || c.Spec.Images.Holdfast != s.image {
		t.Errorf("while nodes are upgraded, the StorageCluster has pause %t by %v, and asks for %s", c.Spec.Paused, c.Annotations, c.Spec.Images.Holdfast)
	}
	kube.AwaitOne(s.Space, objects.StorageClusters(), clusterName, "to say that it is upgraded", func(c *v1beta1.StorageCluster) (bool, error) {
		return c.Status.Phase == v1beta1.ClusterUpgrading && c.Status.Upgrade == back.Name, nil
	})
	s.completes(back.Name, rollingSteps, s.image, earlier)
	s.completes(forth.Name, rollingSteps, earlier, s.image)
	s.awaitImage(s.image)
	nodePods().expect(t, s.image, earlier, s.image)
	expectUndisturbed(t, counters)
	s.binds("after")
}
