package e2e

import (
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// Not parallel: other tests ask for nearly all that a node has, and here each node in turn has least.
func TestImmediateClaim_GoesToTheAllowedNodeWithMostFreeSpace(t *testing.T) {
	s := begin(t)
	nodes := allNodes(t)
	other := second(t, nodes)
	for _, full := range nodes {
		giveBack := leaveLeast(t, s, full)
		s.Claim("any-but-"+full, "64Mi", kube.OfClass(class(t, s, atOnce)))
		if at := placed(s.Volume("any-but-" + full)); at == full {
			t.Errorf("%s has least free, and a claim that may be anywhere is there", full)
		}
		for _, roomy := range nodes {
			if roomy == full {
				continue
			}
			allowed := []string{full, roomy}
			if best := roomiest(t, s, allowed); best != roomy {
				t.Fatalf("of %v, %s has most free", allowed, best)
			}
			name := "not-" + full + "-but-" + roomy
			s.Claim(name, "64Mi", kube.OfClass(class(t, s, atOnce, onlyOn(allowed...))))
			if at := placed(s.Volume(name)); at != roomy {
				t.Errorf("of %v, %s has most free, and the claim is on %s", allowed, roomy, at)
			}
		}
		s.Claim("only-"+full, "64Mi", kube.OfClass(class(t, s, atOnce, onlyOn(full))))
		if at := placed(s.Volume("only-" + full)); at != full {
			t.Errorf("a claim that may only be on %s is on %s", full, at)
		}
		giveBack()
	}
	// A pod that comes later goes where the volume is.
	s.Pod("user", kube.Mount("only-"+other, "/data"), kube.AnyNode)
	if at := s.Ready("user").Spec.NodeName; at != other {
		t.Errorf("the pod runs on %s", at)
	}
}

// leaveLeast makes a claim that leaves a node half of what any other has free, until it is given back.
func leaveLeast(t *testing.T, s *kube.Space, node string) (giveBack func()) {
	t.Helper()
	free := map[string]int64{}
	var least int64 = math.MaxInt64
	for _, n := range s.Nodes(t) {
		free[n] = pool(t, s, n, "available")
		least = min(least, free[n])
	}
	await := func(what string, done func(available int64) bool) {
		t.Helper()
		kube.AwaitOne(s, s.Holdfast("storagenodes"), node, what, func(n *unstructured.Unstructured) (bool, error) {
			return done(ofPool(t, n, "available")), nil
		})
	}
	size := resource.NewQuantity(free[node]-least/2, resource.BinarySI).String()
	s.Claim("large", size, kube.Block, kube.OfClass(class(t, s, atOnce, onlyOn(node))))
	s.Volume("large")
	await("to have least free", func(available int64) bool { return available < least*3/4 })
	return func() {
		t.Helper()
		s.DeleteClaim("large")
		await("to have its room back", func(available int64) bool { return available > free[node]-least/4 })
	}
}

// roomiest is the one of some nodes that says it has most free.
func roomiest(t *testing.T, s *kube.Space, nodes []string) (best string) {
	t.Helper()
	var most int64 = -1
	for _, n := range nodes {
		if free := pool(t, s, n, "available"); free > most {
			best, most = n, free
		}
	}
	return best
}

// ofPool is an amount that a node says of its first pool.
func ofPool(t *testing.T, node *unstructured.Unstructured, field string) int64 {
	t.Helper()
	pools, _, _ := unstructured.NestedSlice(node.Object, "status", "pools")
	pool, _ := pools[0].(map[string]any)
	said, _, _ := unstructured.NestedString(pool, field)
	amount, err := resource.ParseQuantity(said)
	if err != nil {
		t.Fatalf("%s says of its pool %v: %v", node.GetName(), pool, err)
	}
	return amount.Value()
}

func TestImmediateClaim_RestoreOutsideItsSourcesNodeIsRefusedWithTheReason(t *testing.T) {
	t.Parallel()
	s := begin(t)
	other := second(t, allNodes(t))
	s.Claim("data", "64Mi")
	s.Run("writer", kube.Mount("data", "/data"), kube.Script("touch /data/file"))
	s.Snapshot("then", "data")
	modes := map[string][]func(*storagev1.StorageClass){"at-once": {atOnce, onlyOn(other)}, "with-pod": {onlyOn(other)}}
	for name, change := range modes {
		s.Claim(name, "64Mi", kube.OfClass(class(t, s, change...)), kube.From("VolumeSnapshot", "then"))
		if name == "with-pod" {
			s.Pod("user", kube.Mount(name, "/data"), kube.AnyNode)
		}
	}
	for name := range modes {
		s.AwaitEvent(name, "ProvisioningFailed", "must be on node "+s.Home, "allowedTopologies")
		claim, err := s.Client.CoreV1().PersistentVolumeClaims(s.Namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || claim.Status.Phase != corev1.ClaimPending {
			t.Errorf("the claim %s is %s, %v", name, claim.Status.Phase, err)
		}
		if _, err := s.Holdfast("volumes").Get(t.Context(), "pvc-"+string(claim.UID), metav1.GetOptions{}); err == nil {
			t.Errorf("there is a volume of the claim %s", name)
		}
		if name == "with-pod" {
			s.DeletePod("user")
		}
		s.DeleteClaim(name)
	}
	// Where the source is allowed beside others, all is well.
	s.Claim("allowed", "64Mi", kube.OfClass(class(t, s, atOnce, onlyOn(other, s.Home))), kube.From("VolumeSnapshot", "then"))
	if at := placed(s.Volume("allowed")); at != s.Home {
		t.Errorf("it is on %s", at)
	}
}
