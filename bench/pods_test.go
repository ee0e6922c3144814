package bench

import (
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

func TestPods_RunOnlyWhenTheClaimIsSeenBoundToo(t *testing.T) {
	s := newSeen("here")
	plain, with := podPlan{name: "a"}, podPlan{name: "a", claim: "c"}
	s.podEvent(event{watch.Modified, &core.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: core.PodStatus{Phase: core.PodRunning}}, time.Now()})
	if s.running(plain) != finished || s.running(with) != pending {
		t.Errorf("before its claim is bound: %v without a claim, %v with it", s.running(plain), s.running(with))
	}
	s.claimEvent(event{watch.Modified, &core.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "c"}, Status: core.PersistentVolumeClaimStatus{Phase: core.ClaimBound},
	}, time.Now()})
	if s.running(with) != finished {
		t.Errorf("after its claim is bound: %v", s.running(with))
	}
}

func TestPods_OnlyTheFirstEventOfAKindSetsTheTime(t *testing.T) {
	s := newSeen("here")
	begun := time.Unix(1000, 0)
	for i := range 3 {
		s.podEvent(event{watch.Modified, &core.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: core.PodStatus{Phase: core.PodRunning}}, begun.Add(time.Duration(i) * time.Second)})
	}
	if pod := s.pod("a"); !pod.created.Equal(begun) || !pod.running.Equal(begun) || !pod.gone.IsZero() {
		t.Errorf("got %+v", pod)
	}
}

func TestPods_ReasonIsTheMostExactOne(t *testing.T) {
	s := newSeen("here")
	expect := func(want string) {
		t.Helper()
		if got := s.why("Pod", "a"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	report := func(status core.PodStatus) {
		s.podEvent(event{watch.Modified, &core.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: status}, time.Now()})
	}
	expect("the cluster does not say why")
	unschedulable := core.PodStatus{Conditions: []core.PodCondition{{Type: core.PodScheduled, Status: core.ConditionFalse, Message: "0/2 nodes are available"}}}
	report(unschedulable)
	expect("0/2 nodes are available")
	warning := warn("u", "a", "MountVolume failed", 1)
	warning.InvolvedObject.Kind, warning.Reason = "Pod", "FailedMount"
	s.warningEvent(event{watch.Added, warning, time.Now()})
	expect("FailedMount: MountVolume failed")
	waits := func(reason, message string) core.PodStatus {
		return core.PodStatus{ContainerStatuses: []core.ContainerStatus{{State: core.ContainerState{Waiting: &core.ContainerStateWaiting{Reason: reason, Message: message}}}}}
	}
	report(waits("ContainerCreating", "")) // as for any pod
	expect("FailedMount: MountVolume failed")
	report(waits("ErrImagePull", "no such image"))
	expect("ErrImagePull: no such image")
	report(core.PodStatus{Phase: core.PodFailed, Reason: "Evicted"})
	expect("it has ended: Evicted")
	if s.running(podPlan{name: "a"}) != failed {
		t.Error("it has not failed")
	}
}

func TestPods_ClusterIsFullOnlyWhereTheSchedulerSaysSo(t *testing.T) {
	for message, want := range map[string]bool{
		"0/2 nodes are available: 2 Too many pods.":                             true,
		"0/3 nodes are available: 1 Insufficient cpu, 2 Too many pods.":         true,
		"0/1 nodes are available: 1 node(s) exceed max volume count.":           true,
		"0/2 nodes are available: 2 node(s) did not have enough free storage.":  false,
		`0/2 nodes are available: persistentvolumeclaim "claim-1-1" not found.`: false,
		"": false,
	} {
		if got := isFull(message); got != want {
			t.Errorf("%q: %v", message, got)
		}
	}
}
