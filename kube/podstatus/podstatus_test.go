package podstatus

import (
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const container = "work"

// pod has a container beside that of the test, as where sidecars are injected.
func pod(change func(*core.Pod, *core.ContainerStatus)) *core.Pod {
	p := &core.Pod{Spec: core.PodSpec{Containers: []core.Container{{Name: "other", Image: "other:1"}, {Name: container, Image: "work:1"}}}}
	p.Status.ContainerStatuses = []core.ContainerStatus{
		{Name: "other", State: core.ContainerState{Waiting: &core.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}},
		{Name: container},
	}
	change(p, &p.Status.ContainerStatuses[1])
	return p
}

func condition(kind core.PodConditionType, status core.ConditionStatus) func(*core.Pod, *core.ContainerStatus) {
	return func(p *core.Pod, _ *core.ContainerStatus) {
		p.Status.Conditions = []core.PodCondition{{Type: kind, Status: status, Reason: "Reason", Message: "the message"}}
	}
}

func waits(reason, message string) func(*core.Pod, *core.ContainerStatus) {
	return func(_ *core.Pod, s *core.ContainerStatus) {
		s.State.Waiting = &core.ContainerStateWaiting{Reason: reason, Message: message}
	}
}

func TestPending_SaysWhatTheContainerWaitsFor(t *testing.T) {
	for want, change := range map[string]func(*core.Pod, *core.ContainerStatus){
		"its pod has not started yet":                       func(p *core.Pod, _ *core.ContainerStatus) { p.Status = core.PodStatus{} },
		"its pod cannot be scheduled: the message":          condition(core.PodScheduled, core.ConditionFalse),
		"image work:1 cannot be pulled: ErrImagePull: gone": waits("ErrImagePull", "gone"),
		"its container cannot start: StartError":            waits("StartError", ""),
	} {
		if got := Pending(pod(change), container); got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
	for _, reason := range starting {
		if got := Pending(pod(waits(reason, "soon")), container); got != "its pod has not started yet" {
			t.Errorf("%q is a problem: %s", reason, got)
		}
	}
}

func TestFailure_SaysWhoEndedThePod(t *testing.T) {
	reason := func(reason, message string) func(*core.Pod, *core.ContainerStatus) {
		return func(p *core.Pod, _ *core.ContainerStatus) { p.Status.Reason, p.Status.Message = reason, message }
	}
	for want, change := range map[string]func(*core.Pod, *core.ContainerStatus){
		"its pod failed: no reason was given":         func(*core.Pod, *core.ContainerStatus) {},
		"its pod was evicted: disk pressure":          reason("Evicted", "disk pressure. "),
		"it was stopped when the timeout was over":    reason("DeadlineExceeded", "x"),
		"its pod failed (NodeAffinity): no such node": reason("NodeAffinity", "no such node"),
		"its pod was stopped (Reason: the message)":   condition(core.DisruptionTarget, core.ConditionTrue),
	} {
		if got := Failure(pod(change)); got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
}

func TestEnded_SaysHowTheContainerEnded(t *testing.T) {
	for want, end := range map[string]core.ContainerStateTerminated{
		"it was killed for exceeding its memory limit": {Reason: "OOMKilled", ExitCode: 137},
		"it ended with exit code 3":                    {Reason: "Error", ExitCode: 3, Message: "the end of its log"},
		"it ended with exit code 128: no such file":    {Reason: "StartError", ExitCode: 128, Message: "no such file"},
	} {
		if got := Ended(&end); got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
}

func TestIsReady_NotWhileThePodIsDeleted(t *testing.T) {
	p := pod(condition(core.PodReady, core.ConditionTrue))
	if !IsReady(p) || strings.Contains(Unscheduled(p), "message") {
		t.Error("a ready pod is not ready")
	}
	p.DeletionTimestamp = new(metav1.Now())
	if IsReady(p) || IsReady(pod(condition(core.PodReady, core.ConditionFalse))) || !Has(p, core.PodReady, core.ConditionTrue) {
		t.Error("a pod that is deleted or not ready is ready")
	}
}

func TestPause_GrowsToItsLimit(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	p := &core.Pod{Status: core.PodStatus{ContainerStatuses: []core.ContainerStatus{{
		Name: "copy", State: core.ContainerState{Terminated: &core.ContainerStateTerminated{FinishedAt: metav1.NewTime(now)}},
	}}}}
	const first, slowest = 5 * time.Second, 5 * time.Minute
	for failures, want := range map[int32]time.Duration{1: first, 2: 2 * first, 5: 16 * first, 1000: slowest} {
		if got := Pause(p, "copy", Backoff(failures, first, slowest), now); got != want {
			t.Errorf("after %d failures it waits %v, want %v", failures, got, want)
		}
	}
}
