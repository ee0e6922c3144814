package e2e

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-storage/holdfast/test/e2e/kube"
)

// Not parallel: other tests ask for nearly all that a node has.
func TestAClaimThatBindsAtOnceGoesToTheNodeWithMostFreeOfThoseAllowed(t *testing.T) {
	s := begin(t)
	nodes := allNodes(t)
	other := second(t, nodes)
	for name, allowed := range map[string][]string{"any": nil, "one": {other}, "home": {s.Home}, "both": {other, s.Home}} {
		change := []func(*storagev1.StorageClass){atOnce}
		if allowed != nil {
			change = append(change, onlyOn(allowed...))
		}
		// What is free changes while others write to the disk below: so either is right that had most at a moment.
		want := []string{roomiest(t, s)}
		s.Claim(name, "64Mi", kube.OfClass(class(t, s, change...)))
		at := placed(s.Volume(name))
		if want = append(want, roomiest(t, s)); len(allowed) == 1 {
			want = allowed
		}
		if !slices.Contains(want, at) {
			t.Errorf("of the nodes %v, or all where there are none, claim %s is on %s; most was free on %v", allowed, name, at, want)
		}
	}
	// A pod that comes later goes where the volume is.
	s.Pod("user", kube.Mount("one", "/data"), kube.AnyNode)
	if at := s.Ready("user").Spec.NodeName; at != other {
		t.Errorf("the pod runs on %s", at)
	}
}

// roomiest is the node that says it has most free.
func roomiest(t *testing.T, s *kube.Space) (best string) {
	t.Helper()
	nodes, err := s.Holdfast("storagenodes").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var most int64
	for _, n := range nodes.Items {
		if free := ofPool(t, &n, "available"); free > most {
			best, most = n.GetName(), free
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

func TestARestoreThatMayNotBeWhereItsSourceIsIsRefusedAndSaysWhy(t *testing.T) {
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
