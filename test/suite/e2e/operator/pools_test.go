package operator

import (
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

const poolLabel = "e2e.holdfast.dev/disks"

// awaitPools waits until a node reports these pools and no others.
func (a *admin) awaitPools(node string, want ...string) *v1beta1.StorageNode {
	a.t.Helper()
	var n *v1beta1.StorageNode
	kube.AwaitOne(a.Space, a.Holdfast("storagenodes"), node, "to have the pools", func(found *unstructured.Unstructured) (bool, error) {
		var err error
		if n, err = typed[v1beta1.StorageNode](found); err != nil {
			return false, err
		}
		var names []string
		for _, p := range n.Status.Pools {
			names = append(names, p.Name)
		}
		slices.Sort(names)
		return reflect.DeepEqual(names, want), nil
	})
	return n
}

func TestPools_AreWhereTheirTermsMatchAndClaimsLandThere(t *testing.T) {
	hostfs.Long(t)
	a := administer(t)
	home, other := twoNodes(t)
	a.label(other, poolLabel, "7")
	a.change(func(spec *v1beta1.StorageClusterSpec) {
		if len(spec.Pools) == 0 {
			spec.Pools = []v1beta1.PoolSpec{{Name: "default"}}
		}
		spec.Pools = append(spec.Pools, v1beta1.PoolSpec{
			Name: "second", Path: filepath.Join(a.directory(), "pools", "second"), Reserved: "0", Overcommit: "2",
			NodeSelectorTerms: []corev1.NodeSelectorTerm{ // one of two
				{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: poolLabel, Operator: corev1.NodeSelectorOpGt, Values: []string{"5"}}}},
				{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"none"}}}},
			},
		})
		spec.StorageClasses = []v1beta1.StorageClassSpec{{Name: "holdfast", Default: true, Pool: "default"}, {Name: "e2e-pool", Pool: "second"}}
	})
	a.awaitPools(home, "default")
	a.awaitPools(other, "default", "second")

	s := begin(t)
	s.Claim("data", "64Mi", kube.OfClass("e2e-pool"))
	s.Pod("user", kube.Mount("data", "/data"), kube.AnyNode)
	if at := s.Ready("user").Spec.NodeName; at != other {
		t.Errorf("the pod runs on %s, where the pool is not", at)
	}

	a.label(home, poolLabel, "9") // the pool comes with the label, without a rollout
	a.awaitPools(home, "default", "second")
	a.awaitReconciled()
	s.Claim("more", "64Mi", kube.OfClass("e2e-pool"))
	s.Run("home", kube.Mount("more", "/data"), kube.OnNode(home), kube.Script("touch /data/file"))
	s.DeletePod("home")
	s.DeleteClaim("more")
	a.awaitVolumes(1)

	a.label(home, poolLabel, "") // and goes with it
	a.awaitPools(home, "default")
	a.awaitReconciled()
	s.Exec("user", "touch", "/data/file")
	s.DeletePod("user")
	s.DeleteClaim("data")
	a.awaitVolumes(0)

	a.change(asUsual)
	a.awaitPools(other, "default")
	if _, err := a.Client.StorageV1().StorageClasses().Get(t.Context(), "e2e-pool", metav1.GetOptions{}); err == nil {
		t.Error("the class of the pool is still there")
	}
}

// awaitVolumes waits until there are so many volumes.
func (a *admin) awaitVolumes(want int) {
	a.t.Helper()
	kube.Await(a.Space, a.Holdfast("volumes"), metav1.ListOptions{}, "the end of volumes", func(all []*unstructured.Unstructured) (bool, error) {
		return len(all) == want, nil
	})
}

const storesLabel = "e2e.holdfast.dev/stores"

func TestPools_ExcludedNodeWithVolumesIsReportedAndServesThemWhenIncluded(t *testing.T) {
	hostfs.Long(t)
	s := begin(t)
	a := administer(t)
	home, other := twoNodes(t)
	a.label(home, storesLabel, "yes")
	s.Claim("data", "64Mi")
	s.Pod("user", kube.Mount("data", "/data"), kube.OnNode(other), kube.Script("while true; do date >>/data/now; sync /data/now; sleep 0.2; done"))
	before := s.Ready("user")
	volume := s.Volume("data").Spec.CSI.VolumeHandle

	leave := func(spec *v1beta1.StorageClusterSpec) { spec.NodeSelectorTerms = chosen(storesLabel, "yes") }
	a.eventually("a node with a volume being kept from being left out", func(ctx context.Context) error {
		err := a.write(ctx, leave)
		if err == nil || !strings.Contains(err.Error(), "1 volume") || !strings.Contains(err.Error(), other) {
			return fmt.Errorf("that node %s is left out was answered by %w", other, err)
		}
		return nil
	})
	a.allowHiding("default")
	a.ask(leave)
	kube.AwaitNone(a.Space, a.Client.CoreV1().Pods(kube.System), metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/component=node", FieldSelector: "spec.nodeName=" + other,
	}, "the node pod of "+other)
	c := a.await("to count one node", func(c *v1beta1.StorageCluster) bool { return c.Status.ReadyNodes == 1 && c.Status.DesiredNodes == 1 })
	t.Logf("the StorageCluster says %s", inWords(c.Status.Conditions))
	if now := s.Ready("user"); now.UID != before.UID || now.Status.ContainerStatuses[0].RestartCount > 0 {
		t.Errorf("the pod with the volume was restarted: %+v", now.Status.ContainerStatuses)
	}
	kube.AwaitOne(a.Space, a.Holdfast("volumes"), volume, "to say that its node does not serve it", func(found *unstructured.Unstructured) (bool, error) {
		v, err := typed[v1beta1.Volume](found)
		if err != nil {
			return false, err
		}
		for _, condition := range v.Status.Conditions {
			if condition.Type == v1beta1.ReadyCondition && condition.Status != metav1.ConditionTrue {
				t.Logf("the volume says %s: %s", condition.Reason, condition.Message)
				return true, nil
			}
		}
		return false, nil
	})

	a.change(func(spec *v1beta1.StorageClusterSpec) { spec.NodeSelectorTerms = nil })
	s.DeletePod("user")
	s.Run("again", kube.Mount("data", "/data"), kube.OnNode(other), kube.Script("test -s /data/now"))
}
