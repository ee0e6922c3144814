package nodejob

import (
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

func TestCleanup_RunsTheProgramWhereTheNodeHasThePool(t *testing.T) {
	const inPools, known = "/var/lib/holdfast/pools/fast", " --pool=fast --state-dir=/holdfast"
	fast := v1beta1.PoolSpec{Name: "fast", Path: "/srv/fast"}
	for name, c := range map[string]struct {
		pools []v1beta1.PoolSpec
		node  []v1beta1.Pool // as its agent reported them
		want  string
		args  string
	}{
		"where the cluster says":   {[]v1beta1.PoolSpec{{Name: "other", Path: "/x"}, fast}, nil, "/srv/fast", ""},
		"by default":               {[]v1beta1.PoolSpec{{Name: "fast"}}, nil, inPools, known},
		"of a device":              {[]v1beta1.PoolSpec{{Name: "fast", Devices: &v1beta1.DeviceSelector{}}}, []v1beta1.Pool{{Name: "fast", Path: inPools}}, inPools, known + " --disk"},
		"that is no longer wanted": {[]v1beta1.PoolSpec{{Name: "other", Path: "/x"}}, []v1beta1.Pool{{Name: "other", Path: "/x"}, {Name: "fast", Path: "/srv/fast"}}, "/srv/fast", ""},
		"that was a disk":          {nil, []v1beta1.Pool{{Name: "fast", Path: inPools}}, inPools, known},
		"where the node has it":    {[]v1beta1.PoolSpec{{Name: "fast", Path: "/srv/new"}}, []v1beta1.Pool{{Name: "fast", Path: "/srv/fast"}}, "/srv/fast", ""},
		"of a node that errs":      {[]v1beta1.PoolSpec{fast}, []v1beta1.Pool{{Name: "fast", Path: "/srv/../etc"}}, "/srv/fast", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, "a")
			s.job.Spec, s.settings.pools = v1beta1.NodeJobSpec{Task: v1beta1.CleanupTask, Pool: "fast"}, c.pools
			s.pools = map[string][]v1beta1.Pool{"a": c.node}
			p := s.step().step().pod("a")
			if got := p.Spec.Volumes[0].HostPath.Path; got != c.want {
				t.Errorf("it wipes %s, want %s", got, c.want)
			}
			k := p.Spec.Containers[0]
			if got := strings.Join(k.Args, " "); k.Image != "holdfast:1" || got != "cleanup --path=/pool"+c.args || k.VolumeMounts[0].MountPath != "/pool" {
				t.Errorf("it runs %+v", k)
			}
			if records := c.want == inPools; records != (len(k.VolumeMounts) == 2 && k.VolumeMounts[1].ReadOnly && k.VolumeMounts[1].MountPath == "/holdfast/disks" && p.Spec.Volumes[1].HostPath.Path == "/var/lib/holdfast/disks") {
				t.Errorf("it mounts %+v of %+v", k.VolumeMounts, p.Spec.Volumes)
			}
		})
	}
}

func TestCleanup_PoolWithAnUnknownPathIsNotReportedWiped(t *testing.T) {
	s := newScene(t, "a", "b")
	s.job.Spec, s.settings.pools = v1beta1.NodeJobSpec{Task: v1beta1.CleanupTask, Pool: "fast"}, []v1beta1.PoolSpec{{Name: "other", Path: "/x"}}
	s.step().wantJob(v1beta1.JobFailed, "", "neither in spec.pools of the StorageCluster nor in the node's StorageNode")
	if len(s.job.Status.Nodes) > 0 {
		t.Errorf("it began: %+v", s.job.Status)
	}

	// One node knows it still; the other is no longer of the pool, or never was.
	s = newScene(t, "a", "b")
	s.job.Spec, s.settings.pools = v1beta1.NodeJobSpec{Task: v1beta1.CleanupTask, Pool: "fast"}, nil
	s.pools = map[string][]v1beta1.Pool{"a": {{Name: "fast", Path: "/srv/fast"}}}
	s.step().step()
	if len(s.plan.create) != 1 || s.plan.create[0].Annotations[nodeAnnotation] != "a" {
		t.Fatalf("got %+v", s.plan.create)
	}
	s.want("b", v1beta1.JobFailed, "holdfast cleanup --path")
	s.exits("a", 0, "")
	s.step().wantJob(v1beta1.JobFailed, "1/2", "failed: b")
}

func TestCleanup_NodeWithVolumesIsLeftAlone(t *testing.T) {
	s := newScene(t, "a", "b")
	s.job.Spec, s.settings.pools = v1beta1.NodeJobSpec{Task: v1beta1.CleanupTask, Pool: "fast"}, []v1beta1.PoolSpec{{Name: "fast"}}
	s.refusals["a"] = "pool fast is not wiped while it holds something: volume v; delete it first"
	s.step().step()
	if len(s.plan.create) != 1 || s.plan.create[0].Annotations[nodeAnnotation] != "b" {
		t.Fatalf("got %+v", s.plan.create)
	}
	s.want("a", v1beta1.JobFailed, "volume v")
	if s.result("a").Attempts != 0 {
		t.Error("an attempt was begun")
	}
	// A volume that is created during the job keeps a failed attempt from being tried again.
	s.exits("b", 1, "")
	s.refusals["b"] = "volume w"
	s.step().want("b", v1beta1.JobFailed, "volume w")
}

func TestCleanup_RemovedNodeWithVolumesNamesThem(t *testing.T) {
	for refusal, want := range map[string]string{"volume v": "volume v", "": "the node is gone"} {
		s := newScene(t, "a")
		s.job.Spec, s.settings.pools = v1beta1.NodeJobSpec{Task: v1beta1.CleanupTask, Pool: "fast"}, []v1beta1.PoolSpec{{Name: "fast"}}
		s.step()
		s.nodes, s.refusals["a"] = nil, refusal
		s.step().want("a", v1beta1.JobFailed, want)
		if len(s.plan.create) != 0 {
			t.Errorf("%s: a pod is made", want)
		}
	}
}

func TestPull_SucceedsWhenTheKubeletHasTheImage(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(*scene)
		done    bool
	}{
		"nothing yet":             {func(*scene) {}, false},
		"pulling":                 {func(s *scene) { s.waiting("a", "ContainerCreating", "") }, false},
		"not found":               {func(s *scene) { s.waiting("a", "ImagePullBackOff", "not found") }, false},
		"it runs":                 {func(s *scene) { s.running("a") }, true},
		"it has failed":           {func(s *scene) { s.exits("a", 1, "") }, true},
		"its program is missing":  {func(s *scene) { s.waiting("a", "RunContainerError", "exec: not found") }, true},
		"its user is not allowed": {func(s *scene) { s.waiting("a", "CreateContainerConfigError", "runs as root") }, true},
		"it never started": {func(s *scene) {
			s.exits("a", 128, "")
			p := s.pod("a")
			p.Status.ContainerStatuses[0].ImageID, p.Status.ContainerStatuses[0].State.Terminated.ContainerID = "", ""
			p.Status.ContainerStatuses[0].State.Terminated.Reason = "StartError"
		}, true},
		"evicted before": {func(s *scene) { s.pod("a").Status = core.PodStatus{Phase: core.PodFailed, Reason: "Evicted"} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, "a")
			s.job.Spec = v1beta1.NodeJobSpec{Task: v1beta1.PullTask, TaskImage: "image:2"}
			s.step().step()
			if got := s.pod("a").Spec.Containers[0].Image; got != "image:2" {
				t.Errorf("it brings %s", got)
			}
			c.happens(s)
			s.step()
			if done := s.job.Status.Phase == v1beta1.JobCompleted; done != c.done {
				t.Errorf("done is %v, want %v: %+v", done, c.done, s.job.Status)
			}
			if c.done && len(s.pods) > 0 && !over(s.pods[0]) {
				t.Error("the pod goes on")
			}
		})
	}
}

func TestStatus_OfManyNodesStaysSmall(t *testing.T) {
	s := newScene(t)
	for i := range 1000 {
		s.nodes = append(s.nodes, node("node-"+strings.Repeat("x", 40)+string(rune('a'+i%26))+strings.Repeat("y", i/26)))
	}
	s.step().step()
	for _, p := range s.pods {
		s.exits(p.Annotations[nodeAnnotation], 1, strings.Repeat("é", 4000))
	}
	s.job.Spec.BackoffLimit = new(int32)
	s.step()
	total := 0
	for _, n := range s.job.Status.Nodes {
		total += len(n.Log) + len(n.Message)
		if n.Log == "" || strings.ContainsRune(n.Log, '\uFFFD') {
			t.Fatalf("node %s has the log %q", n.Name, n.Log)
		}
	}
	if total > allTails+1000*longestMessage {
		t.Errorf("%d bytes of logs and messages", total)
	}
}

func TestCompletionWord_IsFoundWhereverTheStreamIsSplit(t *testing.T) {
	text := strings.Repeat("noise ", 1000) + "the-word" + strings.Repeat(" more", 1000)
	for _, size := range []int{1, 3, 7, 8, 1000, 100000} {
		s := search{word: "the-word"}
		for rest := []byte(text); len(rest) > 0; {
			n := min(size, len(rest))
			s.add(rest[:n])
			rest = rest[n:]
		}
		if !s.found || len(s.kept) > longestTail {
			t.Errorf("in pieces of %d bytes: found %v, kept %d bytes", size, s.found, len(s.kept))
		}
	}
	s := search{word: "the-word"}
	for _, piece := range []string{"the-", "wo", "r"} {
		s.add([]byte(piece))
	}
	if s.found {
		t.Error("a part of the word was taken for it")
	}
}

func TestLogs_OneThatHeldTheWordIsNotReadAgain(t *testing.T) {
	held := logState{found: true, tail: "all is done\n"}
	l := &logs{known: map[types.UID]*reading{"a": {job: "job", state: held}}} // without a client to read it
	l.read(t.Context(), "job", "done", &core.Pod{ObjectMeta: metav1.ObjectMeta{UID: "a"}})
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.known["a"]; r.cancel != nil || r.state != held {
		t.Errorf("it is read again, and known as %+v", r.state)
	}
}
