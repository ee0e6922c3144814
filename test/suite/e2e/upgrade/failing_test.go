package upgrade

import (
	"maps"
	"slices"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

func TestUpgrade_ToAnImageThatExitsIsRolledBack(t *testing.T) {
	hostfs.Long(t)
	expectRolledBack(t, "exits", "ended with code 2")
}

func TestUpgrade_ToAnImageThatNeverBecomesReadyIsRolledBack(t *testing.T) {
	hostfs.Long(t)
	expectRolledBack(t, "hangs", "to become ready")
}

// expectRolledBack upgrades to an image whose nodes do not work: only one node ever has it.
func expectRolledBack(t *testing.T, how, why string) {
	t.Helper()
	s := begin(t)
	image := s.broken(how)
	counters := s.count()
	before, nodePods := s.nodePods(), s.recordNodePods()
	u := s.upgrade(how, v1beta1.StorageUpgradeSpec{Image: image, NodeTimeout: seconds(90)})
	s.followTo(u.Name, v1beta1.StepRollBack)
	tried := s.triedOn(image)
	u = s.fails(u.Name, v1beta1.StepNodes, "node "+tried, why, string(s.image)+" runs again")
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
	pods, err := s.podsOf(s.t.Context(), "node")
	if err != nil {
		s.t.Fatal(err)
	}
	with := slices.DeleteFunc(pods, func(p core.Pod) bool { return imageOf(&p) != image })
	if len(with) != 1 {
		s.t.Fatalf("%d nodes have %s, and one was to be tried", len(with), image)
	}
	return with[0].Spec.NodeName
}

func TestUpgrade_ToAMissingImageChangesNothing(t *testing.T) {
	hostfs.Long(t)
	s := begin(t)
	const image = "holdfast.test/none:v1"
	before, generation := s.nodePods(), s.storageCluster().Generation
	u := s.upgrade("none", v1beta1.StorageUpgradeSpec{Image: image, NodeTimeout: seconds(90)})
	u = s.fails(u.Name, v1beta1.StepPullImage, image, s.nodes[0], s.nodes[1])
	if steps := stepNames(u); !slices.Equal(steps, []v1beta1.UpgradeStep{v1beta1.StepPullImage}) {
		t.Errorf("the steps were %v", steps)
	}
	s.expectUntouched(before, generation)
}

// TestUpgrade_ToAForeignImageChangesNothing brings an image that exists everywhere and does not say its version.
func TestUpgrade_ToAForeignImageChangesNothing(t *testing.T) {
	hostfs.Long(t)
	s := begin(t)
	before := s.nodePods()
	u := s.upgrade("foreign", v1beta1.StorageUpgradeSpec{Image: "busybox:1", NodeTimeout: seconds(90)})
	u = s.ends(u.Name)
	t.Log(story(u))
	if u.Status.Phase != v1beta1.UpgradeFailed || stepOf(u, v1beta1.StepUpgradeInit) != nil {
		t.Error("it was let at the nodes")
	}
	s.awaitImage(s.image)
	if after := s.nodePods(); !maps.Equal(before, after) {
		t.Errorf("the node pods were %v and are %v", before, after)
	}
}

// expectUntouched checks that the StorageCluster was not written and no node pod was replaced.
func (s *site) expectUntouched(pods map[string]types.UID, generation int64) {
	s.t.Helper()
	if after := s.nodePods(); !maps.Equal(pods, after) {
		s.t.Errorf("the node pods were %v and are %v", pods, after)
	}
	if now := s.storageCluster().Generation; now != generation {
		s.t.Errorf("the StorageCluster was generation %d and is %d", generation, now)
	}
}
