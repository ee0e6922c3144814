package bench

import (
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func podA(status core.PodStatus) *core.Pod {
	return &core.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: status}
}

func TestPods_RunFromTheFirstEventThatSaysSoIfTheClaimIsBoundToo(t *testing.T) {
	s, begun, with := newSeen("here"), time.Unix(1000, 0), plan{pod: "a", claim: "c"}
	for i := range 3 {
		s.podEvent(podA(core.PodStatus{Phase: core.PodRunning}), false, begun.Add(time.Duration(i)*time.Second))
	}
	if !s.at(podCreated, with).Equal(begun) || !s.at(podRunning, with).Equal(begun) || !s.at(podGone, with).IsZero() {
		t.Errorf("got %v", s.times)
	}
	if got := s.state(plan{pod: "a"}, podRunning); got != finished {
		t.Errorf("without a claim: %v", got)
	}
	if got := s.state(with, podRunning); got != pending {
		t.Errorf("before its claim is bound: %v", got)
	}
	claim := &core.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
	claim.Status.Phase = core.ClaimBound
	s.claimEvent(claim, false, begun)
	if got := s.state(with, podRunning); got != finished {
		t.Errorf("after its claim is bound: %v", got)
	}
}

func TestPods_ReasonIsTheMostExactOne(t *testing.T) {
	s := newSeen("here")
	waits := func(reason, message string) core.PodStatus {
		waiting := &core.ContainerStateWaiting{Reason: reason, Message: message}
		return core.PodStatus{ContainerStatuses: []core.ContainerStatus{{Name: container, State: core.ContainerState{Waiting: waiting}}}}
	}
	ended := func(reason, message string) core.PodStatus {
		end := &core.ContainerStateTerminated{ExitCode: 3, Reason: reason, Message: message}
		return core.PodStatus{Phase: core.PodFailed, ContainerStatuses: []core.ContainerStatus{{Name: container, State: core.ContainerState{Terminated: end}}}}
	}
	unplaced := core.PodCondition{Type: core.PodScheduled, Status: core.ConditionFalse, Message: "0/2 nodes are available"}
	for _, step := range []struct {
		status core.PodStatus
		warns  string
		want   string
	}{
		{core.PodStatus{}, "", "the cluster does not say why"},
		{core.PodStatus{Conditions: []core.PodCondition{unplaced}}, "", "0/2 nodes are available"},
		{core.PodStatus{Conditions: []core.PodCondition{unplaced}}, "no room", "ProvisioningFailed: no room"},
		{waits("ContainerCreating", ""), "", "ProvisioningFailed: no room"}, // as for any pod
		{waits("ErrImagePull", "no such image"), "", "ErrImagePull: no such image"},
		{ended("Error", "the end of its log\n"), "", "its container has ended with code 3: Error: the end of its log"},
		{ended("OOMKilled", ""), "", "its container has ended with code 3: OOMKilled"},
		{core.PodStatus{Phase: core.PodFailed, Reason: "Evicted", Message: "disk"}, "", "its pod was evicted: disk"},
	} {
		s.podEvent(podA(step.status), false, time.Now())
		if step.warns != "" {
			s.warningEvent(warn("u", "Pod", "a", step.warns, 1), false, time.Now())
		}
		if got := s.why("Pod", "a"); got != step.want {
			t.Errorf("got %q, want %q", got, step.want)
		}
	}
	if s.state(plan{pod: "a"}, podRunning) != failed {
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
