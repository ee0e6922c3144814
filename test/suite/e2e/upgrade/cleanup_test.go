package upgrade

import (
	"testing"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// pool is the one that test/cluster/install makes.
const pool = "default"

// TestCleanup_PoolIsWipedWhenItsNodeHasNoVolumesAndNoLongerServesIt goes the way of an administrator who takes a node from
// Holdfast, and gives it back.
func TestCleanup_PoolIsWipedWhenItsNodeHasNoVolumesAndNoLongerServesIt(t *testing.T) {
	hostfs.Long(t)
	s := begin(t)
	node := s.nodes[1]
	s.Claim("data", "32Mi")
	s.Pod("user", kube.Mount("data", "/data"), kube.OnNode(node), kube.Script("echo here >/data/it; sync; sleep infinity"))
	s.Ready("user")
	volume := s.Volume("data").Spec.CSI.VolumeHandle
	cleanup := func(name string) *v1beta1.NodeJob {
		return s.job(name, v1beta1.NodeJobSpec{Task: v1beta1.CleanupTask, Pool: pool, NodeSelectorTerms: only(node), BackoffLimit: new(int32(0))})
	}
	refused := s.failsWith(cleanup("used").Name, node, volume)
	if n := refused.Status.Nodes[0]; n.Attempts != 0 {
		t.Errorf("it has run %d times", n.Attempts)
	}
	if it := s.Exec("user", "cat", "/data/it"); it != "here\n" {
		t.Errorf("the volume holds %q", it)
	}
	s.DeletePod("user")
	s.DeleteClaim("data")
	kube.AwaitNone(s.Space, objects.Volumes(), kube.Named(volume), "volume "+volume)
	s.failsWith(cleanup("served").Name, node, "exit code")

	s.storeOn(s.nodes[0])
	kube.AwaitNone(s.Space, s.Client.CoreV1().Pods(kube.System), onNode(selector("node"), node), "the node pod of "+node)
	s.succeeds(cleanup("free").Name, node)
	s.storeOn()
	s.awaitImage(s.image)
	s.binds("after")
}

func onNode(o metav1.ListOptions, node string) metav1.ListOptions {
	o.FieldSelector = "spec.nodeName=" + node
	return o
}

// storeOn lets only some nodes store; without any, all do.
func (s *site) storeOn(nodes ...string) {
	s.t.Helper()
	var terms []core.NodeSelectorTerm
	if len(nodes) > 0 {
		terms = []core.NodeSelectorTerm{{MatchExpressions: []core.NodeSelectorRequirement{
			{Key: core.LabelHostname, Operator: core.NodeSelectorOpIn, Values: nodes},
		}}}
	}
	check.OK(s.t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		c := s.storageCluster()
		c.Spec.NodeSelectorTerms = terms
		_, err := objects.StorageClusters().Update(s.t.Context(), c, metav1.UpdateOptions{})
		return err
	}))
}
