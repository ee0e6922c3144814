package upgrade

import (
	"fmt"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// job runs one.
func (s *site) job(name string, spec v1beta1.NodeJobSpec) *v1beta1.NodeJob {
	s.t.Helper()
	made := check.Got(objects.NodeJobs().Create(s.t.Context(), &v1beta1.NodeJob{ObjectMeta: s.meta(name), Spec: spec}, metav1.CreateOptions{}))(s.t)
	return made
}

// only selects nodes by name.
func only(nodes ...string) []core.NodeSelectorTerm {
	return []core.NodeSelectorTerm{{MatchExpressions: []core.NodeSelectorRequirement{
		{Key: core.LabelHostname, Operator: core.NodeSelectorOpIn, Values: nodes},
	}}}
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
