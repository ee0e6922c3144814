package e2e

import (
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

func TestCapacity_ClaimLargerThanAnyNodeWaitsAndReportsTheFreeSpacePerNode(t *testing.T) {
	t.Parallel()
	s := begin(t)
	nodes := allNodes(t)
	s.Claim("huge", "500Ti")
	s.Pod("user", kube.Mount("huge", "/data"), kube.AnyNode)
	events := s.Client.CoreV1().Events(s.Namespace)
	waits := kube.Await(s, events, metav1.ListOptions{FieldSelector: "reason=NoRoom,involvedObject.name=huge"}, "the event of the claim",
		func(all []*corev1.Event) (bool, error) { return len(all) > 0, nil })
	for _, node := range nodes {
		if amount := regexp.MustCompile(`\b` + regexp.QuoteMeta(node) + ` \d+(Ki|Mi|Gi|Ti)?\b`); !amount.MatchString(waits[0].Message) {
			t.Errorf("what is free on %s is not in %q", node, waits[0].Message)
		}
	}
	kube.Await(s, events, metav1.ListOptions{FieldSelector: "reason=FailedScheduling,involvedObject.name=user"}, "the scheduler to find no node",
		func(all []*corev1.Event) (bool, error) { return len(all) > 0, nil })
	claim, err := s.Client.CoreV1().PersistentVolumeClaims(s.Namespace).Get(t.Context(), "huge", metav1.GetOptions{})
	if err != nil || claim.Status.Phase != corev1.ClaimPending {
		t.Errorf("the claim is %s, %v", claim.Status.Phase, err)
	}
}

func TestCapacity_PodIsScheduledWhereItsVolumeFits(t *testing.T) {
	t.Parallel()
	s := begin(t)
	other := second(t, allNodes(t))
	size := pool(t, s, other, "capacity") + 1 // what is free there changes while other tests run
	if free := pool(t, s, s.Home, "available"); free < size {
		t.Fatalf("%s has %d bytes free, and the test needs %d there", s.Home, free, size)
	}
	s.Claim("data", resource.NewQuantity(size, resource.BinarySI).String())
	s.Pod("user", kube.Mount("data", "/data"), preferring(other))
	if node := s.Ready("user").Spec.NodeName; node != s.Home {
		t.Errorf("the pod with %d bytes runs on %s", size, node)
	}
}

// pool is an amount that a node says of its first pool.
func pool(t *testing.T, s *kube.Space, node, field string) int64 {
	t.Helper()
	n, err := s.Holdfast("storagenodes").Get(t.Context(), node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ofPool(t, n, field)
}

func TestReadWriteOncePod_SecondPodIsRefused(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.Claim("own", "64Mi", kube.AccessMode(corev1.ReadWriteOncePod))
	s.Pod("first", kube.Mount("own", "/data"))
	s.Ready("first")
	s.Pod("second", kube.Mount("own", "/data"))
	kube.AwaitOne(s, s.Client.CoreV1().Pods(s.Namespace), "second", "to be refused", func(p *corev1.Pod) (bool, error) {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && strings.Contains(c.Message, "ReadWriteOncePod") {
				return true, nil
			}
		}
		return false, nil
	})
	s.DeletePod("first")
	s.Ready("second")
}
