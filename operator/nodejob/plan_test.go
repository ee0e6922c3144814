package nodejob

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

var start = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// scene is a job, what is observed of it, and the plans that follow.
type scene struct {
	*testing.T
	job *v1beta1.NodeJob
	observed
	plan plan
}

func newScene(t *testing.T, nodes ...string) *scene {
	t.Helper()
	s := &scene{
		T:   t,
		job: &v1beta1.NodeJob{ObjectMeta: metav1.ObjectMeta{Name: "job", UID: "job-uid"}, Spec: v1beta1.NodeJobSpec{Image: "image:1", BackoffLimit: ptr.To[int32](1)}},
		observed: observed{
			now: start, logs: map[types.UID]logState{}, refusals: map[string]string{},
			settings: settings{namespace: "ours", image: "holdfast:1"},
		},
	}
	for _, n := range nodes {
		s.nodes = append(s.nodes, node(n))
	}
	return s
}

func node(name string, taints ...core.Taint) *core.Node {
	return &core.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name}},
		Spec:       core.NodeSpec{Taints: taints},
		Status:     core.NodeStatus{Conditions: []core.NodeCondition{{Type: core.NodeReady, Status: core.ConditionTrue}}},
	}
}

// step makes one plan and carries it out.
func (s *scene) step() *scene {
	s.Helper()
	s.plan = newPlan(s.job, s.observed)
	s.job.Status = s.plan.status
	for _, p := range s.plan.create {
		p := p.DeepCopy()
		p.UID, p.CreationTimestamp = types.UID("uid-of-"+p.Name), metav1.NewTime(s.now)
		s.pods = append(s.pods, p)
	}
	for _, p := range s.plan.end {
		s.pods = slices.DeleteFunc(s.pods, func(other *core.Pod) bool { return other.UID == p.UID })
	}
	return s
}

// pod is the one of a node.
func (s *scene) pod(node string) *core.Pod {
	s.Helper()
	for _, p := range s.pods {
		if p.Annotations[nodeAnnotation] == node {
			return p
		}
	}
	s.Fatalf("node %s has no pod", node)
	return nil
}

func (s *scene) running(node string) {
	s.pod(node).Status = core.PodStatus{Phase: core.PodRunning, ContainerStatuses: []core.ContainerStatus{{
		Name: containerName, State: core.ContainerState{Running: &core.ContainerStateRunning{}}, ImageID: "sha256:1",
	}}}
}

// exits ends the container of a node, whose log has been read.
func (s *scene) exits(node string, code int32, log string) {
	p := s.pod(node)
	p.Status = core.PodStatus{Phase: core.PodSucceeded, ContainerStatuses: []core.ContainerStatus{{
		Name: containerName, ImageID: "sha256:1",
		State: core.ContainerState{Terminated: &core.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.NewTime(s.now), ContainerID: "c"}},
	}}}
	if code != 0 {
		p.Status.Phase = core.PodFailed
	}
	s.logs[p.UID] = logState{whole: true, tail: log}
}

func (s *scene) waiting(node, reason, message string) {
	s.pod(node).Status = core.PodStatus{Phase: core.PodPending, ContainerStatuses: []core.ContainerStatus{{
		Name: containerName, State: core.ContainerState{Waiting: &core.ContainerStateWaiting{Reason: reason, Message: message}},
	}}}
}

func (s *scene) result(node string) v1beta1.NodeResult {
	s.Helper()
	for _, n := range s.job.Status.Nodes {
		if n.Name == node {
			return n
		}
	}
	s.Fatalf("node %s was not selected: %+v", node, s.job.Status)
	return v1beta1.NodeResult{}
}

func (s *scene) want(node string, phase v1beta1.JobPhase, message string) {
	s.Helper()
	if n := s.result(node); n.Phase != phase || !strings.Contains(n.Message, message) || message == "" && n.Message != "" {
		s.Errorf("node %s is %s: %q, want %s: %q", node, n.Phase, n.Message, phase, message)
	}
}

// doneOf is DONE/ALL of the nodes, and empty if no node was selected.
func doneOf(s *v1beta1.NodeJobStatus) string {
	if s.DesiredNodes == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", s.SucceededNodes, s.DesiredNodes)
}

func (s *scene) wantJob(phase v1beta1.JobPhase, done, message string) {
	s.Helper()
	status := s.job.Status
	complete := meta.FindStatusCondition(status.Conditions, v1beta1.CompleteCondition)
	if status.Phase != phase || doneOf(&status) != done || complete == nil || !strings.Contains(complete.Message, message) {
		s.Errorf("the job is %s %s: %+v, want %s %s: %q", status.Phase, doneOf(&status), complete, phase, done, message)
	}
	if status.Completed != (phase == v1beta1.JobCompleted) || s.plan.finished != (phase == v1beta1.JobCompleted || phase == v1beta1.JobFailed) ||
		meta.IsStatusConditionTrue(status.Conditions, v1beta1.FailedCondition) != (phase == v1beta1.JobFailed) {
		s.Errorf("the job contradicts itself: %+v", status)
	}
}

func (s *scene) after(d time.Duration) *scene { s.now = s.now.Add(d); return s }

func TestPlan_SelectionIsFixedBeforeAnythingRuns(t *testing.T) {
	s := newScene(t, "b", "a").step()
	if len(s.plan.create) != 0 || len(s.job.Status.Nodes) != 2 || s.job.Status.Nodes[0].Name != "a" {
		t.Fatalf("got %+v", s.plan)
	}
	s.nodes = append(s.nodes, node("late"))
	if s.step(); len(s.plan.create) != 2 {
		t.Errorf("%d pods are made, want those of the two nodes that were there", len(s.plan.create))
	}
	s.exits("a", 0, "x")
	s.exits("b", 0, "y")
	s.step().wantJob(v1beta1.JobCompleted, "2/2", "2/2 nodes are done")
}

func TestPlan_PodRunsOnItsNodeAndBelongsToItsJob(t *testing.T) {
	s := newScene(t, "a")
	s.job.Spec = v1beta1.NodeJobSpec{
		Image: "image:1", Command: []string{"do"}, Args: []string{"it"}, HostPath: "/host", MountPath: "/mnt", Privileged: true,
		Timeout: v1beta1.DurationOf(time.Minute), Tolerations: []core.Toleration{{Key: "x", Operator: core.TolerationOpExists}},
	}
	s.settings.pullSecrets = []core.LocalObjectReference{{Name: "registry"}}
	p := s.step().step().pod("a")
	c := p.Spec.Containers[0]
	terms := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	switch owner := metav1.GetControllerOf(p); {
	case owner == nil || owner.UID != s.job.UID || owner.Kind != "NodeJob":
		t.Errorf("its owner is %+v", owner)
	case p.Namespace != "ours" || p.Labels[JobLabel] != "job-uid":
		t.Errorf("it is %+v", p.ObjectMeta)
	case fmt.Sprint(terms) != fmt.Sprint([]core.NodeSelectorTerm{{MatchFields: []core.NodeSelectorRequirement{{Key: "metadata.name", Operator: "In", Values: []string{"a"}}}}}):
		t.Errorf("it goes to %+v", terms)
	case c.Image != "image:1" || c.Command[0] != "do" || c.Args[0] != "it" || !*c.SecurityContext.Privileged || c.VolumeMounts[0].MountPath != "/mnt":
		t.Errorf("its container is %+v", c)
	case p.Spec.Volumes[0].HostPath.Path != "/host" || p.Spec.RestartPolicy != core.RestartPolicyNever || *p.Spec.AutomountServiceAccountToken:
		t.Errorf("its pod is %+v", p.Spec)
	case *p.Spec.ActiveDeadlineSeconds != 90 || p.Spec.Tolerations[0].Key != "x" || p.Spec.ImagePullSecrets[0].Name != "registry":
		t.Errorf("its pod is %+v", p.Spec)
	}
}

func TestPods_OfTwoJobsNeverHaveTheSameName(t *testing.T) {
	long := strings.Repeat("n", 63)
	names := map[string]bool{}
	for _, job := range []*v1beta1.NodeJob{
		{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "2"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "a.b", UID: "3"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "a-b", UID: "4"}},
		{ObjectMeta: metav1.ObjectMeta{Name: long, UID: "5"}},
	} {
		for _, node := range []string{"n1", "n2", strings.Repeat("very.long.", 25)} {
			for attempt := range int32(3) {
				name := podName(job, node, attempt+1)
				if names[name] || len(name) > 63 || strings.Contains(name, ".") {
					t.Errorf("%s is taken, too long, or no name", name)
				}
				names[name] = true
			}
		}
	}
}

func TestPlan_FailedAttemptIsRetriedAfterABackoffUpToTheLimit(t *testing.T) {
	s := newScene(t, "a").step().step()
	first := s.pod("a")
	s.exits("a", 3, "no disk")
	if s.step(); len(s.plan.create) != 0 || s.plan.again != firstRetry {
		t.Fatalf("at once: %+v", s.plan)
	}
	s.want("a", v1beta1.JobRunning, "attempt 1 of 2: it ended with exit code 3")
	if s.after(firstRetry).step(); len(s.plan.create) != 1 || s.pod("a").Name == first.Name || len(s.pods) != 1 {
		t.Fatalf("after the pause: %+v", s.plan)
	}
	s.exits("a", 4, "still no disk")
	s.step().want("a", v1beta1.JobFailed, "exit code 4")
	s.wantJob(v1beta1.JobFailed, "0/1", "failed: a: it ended with exit code 4")
	if n := s.result("a"); n.Attempts != 2 || *n.ExitCode != 4 || n.Log != "still no disk" {
		t.Errorf("got %+v", n)
	}
	if len(s.pods) != 1 {
		t.Error("the pod that failed last is not left to look at")
	}
}

func TestPlan_PodWithAnEndedContainerIsKeptUntilItsPhaseFollows(t *testing.T) {
	s := newScene(t, "a").step().step()
	s.exits("a", 0, "")
	s.pod("a").Status.Phase = core.PodRunning
	s.logs[s.pod("a").UID] = logState{whole: true, err: errors.New("the kubelet does not answer")} // which fails no exit of zero
	s.step().want("a", v1beta1.JobCompleted, "")
	if s.step(); len(s.pods) != 1 {
		t.Error("it was deleted")
	}
}

func TestPlan_OldAttemptWhosePodDeletionFailedIsRetriedAfterTheJob(t *testing.T) {
	s := newScene(t, "a").step().step()
	s.exits("a", 3, "")
	older := s.pod("a")
	s.step().after(firstRetry).step()
	s.exits("a", 3, "")
	last := s.pod("a")
	s.step().wantJob(v1beta1.JobFailed, "0/1", "failed: a")
	s.pods = append(s.pods, older)
	if s.step(); len(s.pods) != 1 || s.pods[0] != last {
		t.Errorf("%d pods are left, of attempt %d and on", len(s.pods), attemptOf(s.job, s.pods[0]))
	}
}

func TestPlan_BackoffGrowsAndIsBounded(t *testing.T) {
	s := newScene(t, "a")
	s.job.Spec.BackoffLimit, s.job.Spec.Timeout = ptr.To[int32](20), v1beta1.DurationOf(time.Hour)
	s.step().step()
	var pauses []time.Duration
	for range 8 {
		s.exits("a", 1, "")
		s.step()
		pauses = append(pauses, s.plan.again)
		s.after(s.plan.again).step()
	}
	want := []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, time.Minute, time.Minute, time.Minute}
	if !slices.Equal(pauses, want) {
		t.Errorf("got %v, want %v", pauses, want)
	}
}

func TestPlan_OneFailedNodeDoesNotStopTheOthers(t *testing.T) {
	s := newScene(t, "a", "b", "c")
	s.job.Spec.BackoffLimit = ptr.To[int32](0)
	s.step().step()
	s.exits("a", 1, "")
	s.step().wantJob(v1beta1.JobRunning, "0/3", "failed: a")
	s.exits("b", 0, "")
	s.exits("c", 0, "")
	s.step().wantJob(v1beta1.JobFailed, "2/3", "2/3 nodes are done; failed: a: it ended with exit code 1")
	if before := s.job.Status; s.step().plan.create != nil || s.job.Status.Phase != before.Phase {
		t.Error("a job that has ended goes on")
	}
}

func TestPlan_TimeoutNamesWhatItWaitedFor(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(*scene)
		want    string
	}{
		"nothing":      {func(*scene) {}, "not done after 10m0s: its pod has not started yet"},
		"no image":     {func(s *scene) { s.waiting("a", "ImagePullBackOff", "not found") }, "not done after 10m0s: image image:1 cannot be pulled: ImagePullBackOff: not found"},
		"no container": {func(s *scene) { s.waiting("a", "CreateContainerError", "no such user") }, "its container cannot start: CreateContainerError: no such user"},
		"not scheduled": {func(s *scene) {
			no := core.PodCondition{Type: core.PodScheduled, Status: core.ConditionFalse, Reason: "Unschedulable", Message: "no room"}
			s.pod("a").Status = core.PodStatus{Phase: core.PodPending, Conditions: []core.PodCondition{no}}
		}, "its pod cannot be scheduled: no room"},
		"the node is silent": {func(s *scene) { s.nodes[0].Status.Conditions[0].Status = core.ConditionUnknown }, "the node is not ready"},
		"the pod never leaves": {func(s *scene) {
			s.pod("a").DeletionTimestamp = &metav1.Time{Time: s.now}
		}, "its pod is being deleted"},
		"it was never to be made": {func(s *scene) {
			s.pods, s.job.Status.Nodes[0].Attempts, s.job.Status.Nodes[0].Message = nil, 0, "its pod cannot be created: forbidden"
		}, "not done after 10m0s: its pod cannot be created: forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, "a").step().step()
			c.happens(s)
			s.after(defaultTimeout).step().want("a", v1beta1.JobFailed, c.want)
			if len(s.pods) != 0 && s.pods[0].DeletionTimestamp == nil {
				t.Error("the pod goes on")
			}
		})
	}
}

func TestPlan_LogOfATimedOutContainerIsRequestedOnce(t *testing.T) {
	s := newScene(t, "a").step().step()
	s.running("a")
	s.after(defaultTimeout).step()
	if len(s.plan.read) != 1 || s.job.Status.Phase != v1beta1.JobRunning {
		t.Fatalf("got %+v", s.plan)
	}
	s.logs[s.pod("a").UID] = logState{whole: true, tail: "busy"}
	s.step().want("a", v1beta1.JobFailed, "not done after 10m0s")
	if n := s.result("a"); n.Log != "busy" || len(s.pods) != 0 {
		t.Errorf("got %+v", n)
	}
}

func TestPlan_TimeoutIsOfTheNodeAndNotOfTheAttempt(t *testing.T) {
	s := newScene(t, "a")
	s.job.Spec.Timeout = v1beta1.DurationOf(10 * time.Second)
	s.step().step().after(7 * time.Second)
	s.exits("a", 1, "")
	s.step().after(2 * time.Second).step()
	if d := *s.pod("a").Spec.ActiveDeadlineSeconds; d != 31 {
		t.Errorf("the second attempt may take %d s, want 1 s and the slack", d)
	}
	s.running("a")
	s.logs[s.pod("a").UID] = logState{tail: "x"}
	s.after(time.Second).step().want("a", v1beta1.JobFailed, "not done after 10s")
}

func TestPlan_StaleStatusDoesNotRunAnAttemptTwice(t *testing.T) {
	s := newScene(t, "a").step()
	before := s.job.DeepCopy()
	s.step().exits("a", 1, "")
	s.step().after(firstRetry).step()
	s.running("a") // attempt 2
	s.job = before // the status of before the first attempt
	if s.step(); len(s.plan.create) != 0 || s.result("a").Attempts != 2 {
		t.Errorf("got %+v", s.plan)
	}
}

func TestPlan_PodOfAnOlderAttemptDoesNotCountForTheNewest(t *testing.T) {
	s := newScene(t, "a").step().step()
	s.exits("a", 1, "")
	old := s.pod("a")
	s.step().after(firstRetry).step()
	s.pods = []*core.Pod{old} // its end has not been seen, and the newest was deleted
	old.Status = core.PodStatus{}
	s.step().want("a", v1beta1.JobFailed, "its pod was deleted")
}

func TestPlan_RemovedNodeIsNamedAndNotRetried(t *testing.T) {
	s := newScene(t, "a", "b").step().step()
	s.running("a")
	s.exits("b", 0, "")
	s.nodes = nil
	s.step().want("a", v1beta1.JobFailed, "the node is gone")
	s.want("b", v1beta1.JobCompleted, "")
	s.wantJob(v1beta1.JobFailed, "1/2", "failed: a: the node is gone")
}

func TestPlan_DeletedPodIsRecreated(t *testing.T) {
	s := newScene(t, "a").step().step()
	s.pods = nil
	s.step().want("a", v1beta1.JobRunning, "attempt 1 of 2: its pod was deleted")
	if len(s.plan.create) != 1 || s.result("a").Attempts != 2 {
		t.Fatalf("got %+v", s.plan)
	}
	s.pods = nil
	s.step().want("a", v1beta1.JobFailed, "its pod was deleted")
}

func TestPlan_PodOfNoAttemptDoesNotCount(t *testing.T) {
	for name, c := range map[string]struct {
		refusal string
		phase   v1beta1.JobPhase
		creates int
	}{
		"where the task may run":  {"", v1beta1.JobRunning, 1},
		"where the task must not": {"volume v", v1beta1.JobFailed, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, "a")
			before := s.step().job.DeepCopy()
			s.step().exits("a", 0, "")
			s.pod("a").Name = "copy"
			s.job, s.refusals["a"] = before, c.refusal
			s.step().want("a", c.phase, c.refusal)
			if n := s.result("a"); len(s.plan.create) != c.creates || n.Attempts != int32(c.creates) || n.ExitCode != nil || n.Log != "" {
				t.Errorf("got %+v, and %d pods are made", n, len(s.plan.create))
			}
		})
	}
}

func TestPlan_PodWhoseAnnotationIsChangedIsNotTakenForDeleted(t *testing.T) {
	for name, change := range map[string]func(*core.Pod){
		"removed": func(p *core.Pod) { delete(p.Annotations, nodeAnnotation) },
		"changed": func(p *core.Pod) { p.Annotations[nodeAnnotation] = "other" },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, "a").step().step()
			s.running("a")
			change(s.pod("a"))
			s.step().want("a", v1beta1.JobRunning, "its pod has not been seen yet")
			if len(s.plan.create) != 0 || s.result("a").Attempts != 1 {
				t.Errorf("two attempts run: %+v", s.plan)
			}
		})
	}
}

func TestPlan_CompletionWordSufficesWhateverTheContainerDoes(t *testing.T) {
	s := newScene(t, "a")
	s.job.Spec.CompletionWord = "done"
	s.step().step()
	s.running("a")
	if s.step(); len(s.plan.read) != 1 {
		t.Fatalf("its log is not followed: %+v", s.plan)
	}
	s.logs[s.pod("a").UID] = logState{found: true, tail: "all done"}
	s.step().want("a", v1beta1.JobCompleted, "")
	if s.result("a").Log != "all done" || len(s.pods) != 0 {
		t.Errorf("got %+v, and %d pods go on", s.result("a"), len(s.pods))
	}
	s.wantJob(v1beta1.JobCompleted, "1/1", "1/1 nodes are done")
}

func TestPlan_ExitIsJudgedByTheCompletionWordIfThereIsOne(t *testing.T) {
	for name, c := range map[string]struct {
		code         int32
		log          logState
		reason, left string // of the container, in its status
		phase        v1beta1.JobPhase
		want         string
	}{
		"with the word":                   {0, logState{found: true, whole: true}, "", "", v1beta1.JobCompleted, ""},
		"with the word and a bad exit":    {1, logState{found: true, whole: true}, "", "", v1beta1.JobCompleted, ""},
		"without the word":                {0, logState{whole: true}, "", "", v1beta1.JobFailed, `exit code 0 and did not write "done"`},
		"without a log":                   {0, logState{whole: true, err: errors.New("gone")}, "", "", v1beta1.JobFailed, "its log cannot be read: gone"},
		"before the log was read":         {0, logState{}, "", "", v1beta1.JobRunning, "its log is being read"},
		"left, and the log was rotated":   {1, logState{whole: true, tail: "later"}, "Completed", "all done\n", v1beta1.JobCompleted, ""},
		"left, and the log is away":       {1, logState{whole: true, err: errors.New("the node is away")}, "Error", "all done\n", v1beta1.JobCompleted, ""},
		"in what only others say of it":   {1, logState{whole: true}, "StartError", `exec "echo done"`, v1beta1.JobFailed, "exit code 1"},
		"not in what the container left ": {1, logState{whole: true}, "Completed", "half", v1beta1.JobFailed, "exit code 1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, "a")
			s.job.Spec.CompletionWord, s.job.Spec.BackoffLimit = "done", ptr.To[int32](0)
			s.step().step()
			s.exits("a", c.code, "")
			p := s.pod("a")
			p.Status.ContainerStatuses[0].State.Terminated.Reason, p.Status.ContainerStatuses[0].State.Terminated.Message = c.reason, c.left
			s.logs[p.UID] = c.log
			s.step().want("a", c.phase, c.want)
			if reads := len(s.plan.read); (reads == 1) != !c.log.whole {
				t.Errorf("%d logs are read", reads)
			}
		})
	}
}

func TestPlan_CauseOfAPodsEndIsReported(t *testing.T) {
	killed := func(s *scene, change func(*core.Pod)) {
		s.exits("a", 137, "")
		change(s.pod("a"))
	}
	for name, c := range map[string]struct {
		happens func(*scene)
		want    string
	}{
		"evicted": {func(s *scene) {
			s.pod("a").Status = core.PodStatus{Phase: core.PodFailed, Reason: "Evicted", Message: "The node was low on resource: memory. "}
		}, "its pod was evicted: The node was low on resource: memory"},
		"evicted while it ran": {func(s *scene) {
			killed(s, func(p *core.Pod) { p.Status.Reason, p.Status.Message = "Evicted", "disk pressure" })
		}, "its pod was evicted: disk pressure"},
		"drained": {func(s *scene) {
			killed(s, func(p *core.Pod) {
				p.Status.Conditions = []core.PodCondition{{Type: core.DisruptionTarget, Status: core.ConditionTrue, Reason: "EvictionByEvictionAPI", Message: "evicting"}}
			})
		}, "its pod was stopped (EvictionByEvictionAPI: evicting)"},
		"out of memory": {func(s *scene) {
			killed(s, func(p *core.Pod) { p.Status.ContainerStatuses[0].State.Terminated.Reason = "OOMKilled" })
		}, "killed for exceeding its memory"},
		"no such program": {func(s *scene) {
			killed(s, func(p *core.Pod) {
				t := p.Status.ContainerStatuses[0].State.Terminated
				t.ExitCode, t.Reason, t.Message = 128, "StartError", "exec: not found"
			})
		}, "it ended with exit code 128: exec: not found"},
		"the kubelet refused it": {func(s *scene) {
			s.pod("a").Status = core.PodStatus{Phase: core.PodFailed, Reason: "UnexpectedAdmissionError", Message: "no room"}
		}, "its pod failed (UnexpectedAdmissionError): no room"},
		"a deletion while it ended well": {func(s *scene) {
			s.exits("a", 0, "")
			s.pod("a").DeletionTimestamp, s.pod("a").DeletionGracePeriodSeconds = &metav1.Time{Time: s.now.Add(30 * time.Second)}, ptr.To[int64](30)
		}, "its pod was deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, "a")
			s.job.Spec.BackoffLimit = ptr.To[int32](0)
			s.step().step()
			c.happens(s)
			s.step().want("a", v1beta1.JobFailed, c.want)
		})
	}
}

func TestPlan_SomeFailuresAreNotRetried(t *testing.T) {
	for want, happens := range map[string]func(*scene){
		"image image:1 cannot be pulled: InvalidImageName: not parsed": func(s *scene) { s.waiting("a", "InvalidImageName", "not parsed") },
		"when the timeout was over": func(s *scene) {
			s.pod("a").Status = core.PodStatus{Phase: core.PodFailed, Reason: "DeadlineExceeded"}
		},
	} {
		s := newScene(t, "a").step().step()
		happens(s)
		s.step().want("a", v1beta1.JobFailed, want)
	}
}

func TestPlan_ImagePullErrorIsReportedWhileWaiting(t *testing.T) {
	s := newScene(t, "a").step().step()
	s.waiting("a", "ErrImagePull", "not found")
	s.step().want("a", v1beta1.JobRunning, "image image:1 cannot be pulled: ErrImagePull: not found")
	s.wantJob(v1beta1.JobRunning, "0/1", "waiting: a: image image:1 cannot be pulled")
}
