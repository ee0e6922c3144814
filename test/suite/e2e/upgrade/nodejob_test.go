package upgrade

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

const busybox = "busybox:1"

// shared is a directory of each node that its node pod sees too: it is in that of the kubelet.
func (s *site) shared() string {
	return path.Join(cmp.Or(installed.CSI.KubeletDir, "/var/lib/kubelet"), s.Namespace)
}

// job runs one.
func (s *site) job(name string, spec v1beta1.NodeJobSpec) *v1beta1.NodeJob {
	s.t.Helper()
	made, err := objects.NodeJobs().Create(s.t.Context(), &v1beta1.NodeJob{ObjectMeta: s.meta(name), Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return made
}

func script(text string) []string { return []string{"sh", "-ec", text} }

// only selects nodes by name.
func only(nodes ...string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: core.LabelHostname, Operator: metav1.LabelSelectorOpIn, Values: nodes},
	}}
}

func (s *site) followJob(name, what string, done func(*v1beta1.NodeJob) bool) *v1beta1.NodeJob {
	s.t.Helper()
	return kube.AwaitOne(s.Space, objects.NodeJobs(), name, what, func(j *v1beta1.NodeJob) (bool, error) {
		if !done(j) && (j.Status.Phase == v1beta1.JobCompleted || j.Status.Phase == v1beta1.JobFailed) {
			return false, fmt.Errorf("it has ended: %+v", j.Status)
		}
		return done(j), nil
	})
}

// succeeds waits until a job is done on all nodes, and returns what came of each.
func (s *site) succeeds(name string, nodes ...string) []v1beta1.NodeResult {
	s.t.Helper()
	j := s.followJob(name, "to be completed", func(j *v1beta1.NodeJob) bool { return j.Status.Phase == v1beta1.JobCompleted })
	if !j.Status.Completed || int(j.Status.SucceededNodes) != len(nodes) || int(j.Status.DesiredNodes) != len(nodes) ||
		!meta.IsStatusConditionTrue(j.Status.Conditions, v1beta1.ReadyCondition) || !meta.IsStatusConditionTrue(j.Status.Conditions, v1beta1.CompleteCondition) {
		s.t.Errorf("it says %+v, want %d nodes done", j.Status, len(nodes))
	}
	if names := namesOf(j); !slices.Equal(names, nodes) {
		s.t.Errorf("it ran on %v, want %v", names, nodes)
	}
	for _, n := range j.Status.Nodes {
		if n.Phase != v1beta1.JobCompleted {
			s.t.Errorf("node %s is %+v", n.Name, n)
		}
	}
	if e := s.AwaitClusterEvent(name, "JobCompleted"); e.Type != core.EventTypeNormal {
		s.t.Errorf("the event is %s", e.Type)
	}
	return j.Status.Nodes
}

// failsWith waits until a job has failed, and sees that it says why with all the words.
func (s *site) failsWith(name string, words ...string) *v1beta1.NodeJob {
	s.t.Helper()
	j := s.followJob(name, "to have failed", func(j *v1beta1.NodeJob) bool { return j.Status.Phase == v1beta1.JobFailed })
	failed := meta.FindStatusCondition(j.Status.Conditions, v1beta1.FailedCondition)
	if j.Status.Completed || failed == nil || failed.Status != metav1.ConditionTrue {
		s.t.Fatalf("it says %+v", j.Status)
	}
	for _, word := range words {
		if !strings.Contains(failed.Message, word) {
			s.t.Errorf("the condition says %q, and nothing of %q", failed.Message, word)
		}
	}
	if e := s.AwaitClusterEvent(name, "JobFailed", words...); e.Type != core.EventTypeWarning {
		s.t.Errorf("the event is %s", e.Type)
	}
	return j
}

func namesOf(j *v1beta1.NodeJob) (names []string) {
	for _, n := range j.Status.Nodes {
		names = append(names, n.Name)
	}
	return names
}

func podsOfJob(j *v1beta1.NodeJob) metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: "holdfast.dev/node-job=" + string(j.UID)}
}

func TestNodeJob_RunsOnceOnEachNodeAndItsPodsAreDeletedWithIt(t *testing.T) {
	hostfs.Long(t)
	s := begin(t)
	j := s.job("writes", v1beta1.NodeJobSpec{
		Image: busybox, Command: script(`echo once >>/host/ran; uname -r; echo "written $1"`), Args: []string{"sh", "well"},
		HostPath: s.shared(), MountPath: "/host",
	})
	for _, n := range s.succeeds(j.Name, s.nodes...) {
		if n.Attempts != 1 || n.ExitCode == nil || *n.ExitCode != 0 || !strings.HasSuffix(n.Log, "written well\n") {
			t.Errorf("node %s says %+v", n.Name, n)
		}
		if kernel := s.OnHost(n.Name, "uname -r"); !strings.HasPrefix(n.Log, kernel) {
			t.Errorf("on node %s, which has kernel %q, the job says %q", n.Name, kernel, n.Log)
		}
		if ran := s.OnHost(n.Name, "cat "+s.shared()+"/ran; rm -r "+s.shared()); ran != "once\n" {
			t.Errorf("on node %s the job has written %q", n.Name, ran)
		}
	}
	if err := objects.NodeJobs().Delete(t.Context(), j.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kube.AwaitNone(s.Space, s.Client.CoreV1().Pods(kube.System), podsOfJob(j), "the pods of job "+j.Name)
}

// TestNodeJob_FailureOnOneNodeNamesTheNodeAndTheCause fails on the node that has a kernel of its own.
func TestNodeJob_FailureOnOneNodeNamesTheNodeAndTheCause(t *testing.T) {
	hostfs.Long(t)
	s := begin(t)
	good, bad := s.nodes[0], s.nodes[1]
	j := s.job("fails", v1beta1.NodeJobSpec{
		Image: busybox, BackoffLimit: new(int32(1)), LabelSelector: only(good, bad),
		Command: script(`echo begun; if grep -qi 'user mode' /proc/cpuinfo; then echo 'no way to go on' >&2; exit 3; fi`),
	})
	j = s.failsWith(j.Name, bad, "exit code 3", "1/2 nodes")
	results := map[string]v1beta1.NodeResult{}
	for _, n := range j.Status.Nodes {
		results[n.Name] = n
	}
	if n := results[good]; n.Phase != v1beta1.JobCompleted || n.Log != "begun\n" || n.Attempts != 1 {
		t.Errorf("the node on which it went well is %+v", n)
	}
	n := results[bad]
	if n.Phase != v1beta1.JobFailed || n.ExitCode == nil || *n.ExitCode != 3 || n.Attempts != 2 {
		t.Errorf("the node on which it failed is %+v, want exit code 3 of the second attempt", n)
	}
	if !strings.Contains(n.Log, "begun\n") || !strings.Contains(n.Log, "no way to go on\n") {
		t.Errorf("its log ends with %q", n.Log)
	}
}

func TestNodeJob_EndsAtItsTimeout(t *testing.T) {
	hostfs.Long(t)
	s := begin(t)
	j := s.job("sleeps", v1beta1.NodeJobSpec{
		Image: busybox, Command: script("echo going to sleep; sleep infinity"), LabelSelector: only(s.nodes[0]),
		Timeout: seconds(20),
	})
	j = s.failsWith(j.Name, s.nodes[0], "not done after 20s")
	if n := j.Status.Nodes[0]; n.Phase != v1beta1.JobFailed || n.Log != "going to sleep\n" {
		t.Errorf("the node is %+v", n)
	}
	kube.AwaitNone(s.Space, s.Client.CoreV1().Pods(kube.System), podsOfJob(j), "the pod that still ran")
}

func TestNodeJob_SucceedsWhenItsCompletionWordIsInTheLog(t *testing.T) {
	hostfs.Long(t)
	s := begin(t)
	says := s.job("says", v1beta1.NodeJobSpec{
		Image: busybox, CompletionWord: "all-is-well", Command: script("echo working; echo all-is-well; sleep infinity"),
	})
	silent := s.job("silent", v1beta1.NodeJobSpec{
		Image: busybox, CompletionWord: "all-is-well", Command: script("echo working"), BackoffLimit: new(int32(0)),
	})
	s.succeeds(says.Name, s.nodes...)
	kube.AwaitNone(s.Space, s.Client.CoreV1().Pods(kube.System), podsOfJob(says), "the pods that would go on")
	s.failsWith(silent.Name, s.nodes[0], s.nodes[1], `did not write "all-is-well"`)
}

// TestNodeJob_ExcludesANodeAddedWhileItRuns adds a Node that no kubelet serves.
func TestNodeJob_ExcludesANodeAddedWhileItRuns(t *testing.T) {
	hostfs.Long(t)
	s := begin(t)
	spec := v1beta1.NodeJobSpec{
		Image: busybox, Command: script("until test -e /host/go; do sleep 0.2; done"), HostPath: s.shared(), MountPath: "/host",
		Tolerations: []core.Toleration{{Operator: core.TolerationOpExists}},
	}
	j := s.job("before", spec)
	s.followJob(j.Name, "to run on all nodes", func(j *v1beta1.NodeJob) bool {
		waits := slices.ContainsFunc(j.Status.Nodes, func(n v1beta1.NodeResult) bool { return n.Phase != v1beta1.JobRunning })
		return len(j.Status.Nodes) == len(s.nodes) && !waits
	})
	added := s.addNode()
	later := s.job("after", spec)
	all := s.followJob(later.Name, "to choose its nodes", func(j *v1beta1.NodeJob) bool { return len(j.Status.Nodes) > 0 })
	if names := namesOf(all); !slices.Contains(names, added) || len(names) != len(s.nodes)+1 {
		t.Errorf("a job that began later runs on %v, and %s was added", names, added)
	}
	for _, node := range s.nodes {
		s.OnHost(node, "mkdir -p "+s.shared()+"; touch "+s.shared()+"/go") // its pod may not have come to that yet
	}
	s.succeeds(j.Name, s.nodes...)
	for _, node := range s.nodes {
		s.OnHost(node, "rm -r "+s.shared())
	}
}

// addNode makes a Node for the time of the test. Holdfast does not store there: it is no Linux.
func (s *site) addNode() string {
	s.t.Helper()
	nodes := s.Client.CoreV1().Nodes()
	made, err := nodes.Create(s.t.Context(), &core.Node{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "added-", Labels: map[string]string{core.LabelOSStable: "none"},
	}}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := nodes.Delete(withoutEnd(s.t), made.Name, metav1.DeleteOptions{}); err != nil {
			s.t.Error(err)
		}
	})
	return made.Name
}

func TestNodeJob_PullsAnImageOnEveryNode(t *testing.T) {
	hostfs.Long(t)
	s := begin(t)
	there := s.job("there", v1beta1.NodeJobSpec{Task: v1beta1.PullTask, TaskImage: s.earlier()})
	missing := s.job("missing", v1beta1.NodeJobSpec{
		Task: v1beta1.PullTask, TaskImage: "holdfast.test/none:v1", Timeout: seconds(20),
	})
	s.succeeds(there.Name, s.nodes...)
	s.failsWith(missing.Name, s.nodes[0], s.nodes[1], "holdfast.test/none:v1")
}
