package upgrade

import (
	"fmt"
	"slices"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// The steps of an upgrade that ends well, in their order.
var (
	rollingSteps = []v1beta1.UpgradeStep{
		v1beta1.StepPullImage, v1beta1.StepPauseCluster, v1beta1.StepPreflight, v1beta1.StepUpgradeInit, v1beta1.StepNodes, v1beta1.StepNFSServers,
		v1beta1.StepController, v1beta1.StepUpgradeComplete,
	}
	offlineSteps = []v1beta1.UpgradeStep{
		v1beta1.StepPullImage, v1beta1.StepPauseCluster, v1beta1.StepPreflight, v1beta1.StepUpgradeInit, v1beta1.StepScaleDown, v1beta1.StepNodes, v1beta1.StepNFSServers,
		v1beta1.StepController, v1beta1.StepScaleUp, v1beta1.StepUpgradeComplete,
	}
)

// upgrade begins one.
func (s *site) upgrade(name string, spec v1beta1.StorageUpgradeSpec) *v1beta1.StorageUpgrade {
	s.t.Helper()
	made := check.Got(objects.StorageUpgrades().Create(s.t.Context(), &v1beta1.StorageUpgrade{ObjectMeta: s.meta(name), Spec: spec}, metav1.CreateOptions{}))(s.t)
	return made
}

func seconds(n int) *v1beta1.Duration {
	return v1beta1.DurationOf(time.Duration(n) * time.Second)
}

// follow waits for a state of an upgrade. That it has ended before is an error, unless that is the state.
func (s *site) follow(name, what string, done func(*v1beta1.StorageUpgrade) bool) *v1beta1.StorageUpgrade {
	s.t.Helper()
	return kube.AwaitOne(s.Space, objects.StorageUpgrades(), name, what, func(u *v1beta1.StorageUpgrade) (bool, error) {
		if !done(u) && hasEnded(u) {
			return false, fmt.Errorf("it has ended: %s", story(u))
		}
		return done(u), nil
	})
}

func (s *site) followTo(name string, step v1beta1.UpgradeStep) *v1beta1.StorageUpgrade {
	s.t.Helper()
	return s.follow(name, "to come to step "+string(step), func(u *v1beta1.StorageUpgrade) bool { return stepOf(u, step) != nil })
}

// ends waits for the end of an upgrade, however long it takes, as long as it goes on.
func (s *site) ends(name string) *v1beta1.StorageUpgrade {
	s.t.Helper()
	for last := ""; ; {
		u := s.follow(name, "to go on", func(u *v1beta1.StorageUpgrade) bool { return progress(u) != last })
		if hasEnded(u) {
			return u
		}
		last = progress(u)
	}
}

func progress(u *v1beta1.StorageUpgrade) string {
	return fmt.Sprint(u.Status.Phase, len(u.Status.Steps), u.Status.Node, u.Status.UpgradedNodes)
}

func hasEnded(u *v1beta1.StorageUpgrade) bool {
	return u.Status.Phase == v1beta1.UpgradeCompleted || u.Status.Phase == v1beta1.UpgradeFailed
}

func stepOf(u *v1beta1.StorageUpgrade, name v1beta1.UpgradeStep) *v1beta1.UpgradeStepStatus {
	i := slices.IndexFunc(u.Status.Steps, func(s v1beta1.UpgradeStepStatus) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &u.Status.Steps[i]
}

func stepNames(u *v1beta1.StorageUpgrade) (names []v1beta1.UpgradeStep) {
	for _, s := range u.Status.Steps {
		names = append(names, s.Name)
	}
	return names
}

// story describes an upgrade step by step.
func story(u *v1beta1.StorageUpgrade) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s is %s, %d of %d nodes", u.Name, u.Status.Phase, u.Status.UpgradedNodes, u.Status.DesiredNodes)
	for _, s := range u.Status.Steps {
		took := "goes on"
		if s.EndTime != nil {
			took = s.EndTime.Sub(s.StartTime.Time).String()
		}
		fmt.Fprintf(&text, "\n  %s (%s): %s", s.Name, took, s.Message)
	}
	for _, c := range u.Status.Conditions {
		fmt.Fprintf(&text, "\n  %s is %s (%s): %s", c.Type, c.Status, c.Reason, c.Message)
	}
	return text.String()
}

// completes waits until an upgrade has ended well, and looks at all that it says of itself.
func (s *site) completes(name string, steps []v1beta1.UpgradeStep, from, to v1beta1.Image) *v1beta1.StorageUpgrade {
	s.t.Helper()
	u := s.ends(name)
	s.t.Log(story(u))
	if u.Status.Phase != v1beta1.UpgradeCompleted || !u.Status.Completed || !meta.IsStatusConditionTrue(u.Status.Conditions, v1beta1.CompleteCondition) {
		s.t.Fatalf("the upgrade has not ended well")
	}
	if all := len(s.nodes); u.Status.From != from || u.Status.To != to || int(u.Status.UpgradedNodes) != all || int(u.Status.DesiredNodes) != all {
		s.t.Errorf("it says that it brought %d of the nodes from %s to %s, want %d from %s to %s", u.Status.UpgradedNodes, u.Status.From, u.Status.To, all, from, to)
	}
	if names := stepNames(u); !slices.Equal(names, steps) {
		s.t.Errorf("the steps were %v, want %v", names, steps)
	}
	s.expectReported(u, core.EventTypeNormal)
	return u
}

// expectReported sees that each step has its times, and an event.
func (s *site) expectReported(u *v1beta1.StorageUpgrade, kind string) {
	s.t.Helper()
	before := metav1.Time{}
	for _, step := range u.Status.Steps {
		if step.StartTime.Before(&before) || step.EndTime == nil || step.EndTime.Before(&step.StartTime) || step.Message == "" {
			s.t.Errorf("step %s has the times %v and %v, and the message %q", step.Name, step.StartTime, step.EndTime, step.Message)
		}
		before = step.StartTime
		want := core.EventTypeNormal
		if step.Name == v1beta1.StepRollBack {
			want = kind
		}
		if e := s.AwaitClusterEvent(u.Name, string(step.Name)); e.Type != want {
			s.t.Errorf("the event of step %s is %s", step.Name, e.Type)
		}
	}
}

// fails waits until an upgrade has ended badly, and sees that it says why with all the words, and that all of Holdfast
// is as before.
func (s *site) fails(name string, at v1beta1.UpgradeStep, words ...string) *v1beta1.StorageUpgrade {
	s.t.Helper()
	u := s.ends(name)
	s.t.Log(story(u))
	failed := meta.FindStatusCondition(u.Status.Conditions, v1beta1.FailedCondition)
	if u.Status.Phase != v1beta1.UpgradeFailed || u.Status.Completed || failed == nil || failed.Status != metav1.ConditionTrue {
		s.t.Fatal("the upgrade has not failed")
	}
	for _, word := range append(words, "step "+string(at)) {
		if !strings.Contains(failed.Message, word) {
			s.t.Errorf("the condition says %q, and nothing of %q", failed.Message, word)
		}
	}
	if e := s.AwaitClusterEvent(u.Name, "UpgradeFailed", words...); e.Type != core.EventTypeWarning {
		s.t.Errorf("the event of the failure is %s", e.Type)
	}
	s.expectReported(u, core.EventTypeWarning)
	s.awaitImage(s.image)
	return u
}
