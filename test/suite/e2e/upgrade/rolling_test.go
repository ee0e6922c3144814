package upgrade

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

func TestUpgrade_ToTheRunningReleaseIsCompleteAtOnce(t *testing.T) {
	hostfs.Long(t)
	s := begin(t)
	before, generation := s.nodePods(), s.storageCluster().Generation
	u := s.ends(s.upgrade("same", v1beta1.StorageUpgradeSpec{Image: s.image}).Name)
	if !u.Status.Completed || !meta.IsStatusConditionTrue(u.Status.Conditions, v1beta1.CompleteCondition) {
		t.Errorf("it has not ended well: %s", story(u))
	}
	s.expectUntouched(before, generation)
}

// TestUpgrade_DeletedMidwayIsReverted deletes it when one node runs the other release, and the rest
// does not. The one that waits goes on.
func TestUpgrade_DeletedMidwayIsReverted(t *testing.T) {
	hostfs.Long(t)
	s := begin(t)
	earlier := s.earlier()
	counters := s.count()
	nodePods := s.recordNodePods()
	u := s.upgrade("deleted", v1beta1.StorageUpgradeSpec{Image: earlier})
	s.follow(u.Name, "to have upgraded a node", func(u *v1beta1.StorageUpgrade) bool { return u.Status.UpgradedNodes == 1 })
	next := s.upgrade("next", v1beta1.StorageUpgradeSpec{Image: s.image})
	s.waitsFor(next, u)
	if err := objects.StorageUpgrades().Delete(t.Context(), u.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kube.AwaitNone(s.Space, objects.StorageUpgrades(), kube.Named(u.Name), "upgrade "+u.Name)
	s.awaitImage(s.image)
	if u := s.ends(next.Name); !u.Status.Completed {
		t.Errorf("the one that waited: %s", story(u))
	}
	if r := nodePods(); len(r.complaints) > 0 {
		t.Error(r.complaints)
	}
	expectUndisturbed(t, counters)
	s.binds("after")
}
