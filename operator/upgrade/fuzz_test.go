package upgrade

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/hostile"
)

// FuzzStorageUpgrade lets any upgrade run to its end, in any cluster.
func FuzzStorageUpgrade(f *testing.F) {
	for _, seed := range hostile.Seeds(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, choices []byte) {
		s := anyUpgrade(t, choices)
		for range 80 {
			over := s.over()
			s.step()
			s.shaped()
			if over {
				s.wantNothingLeft()
				return
			}
			if s.job != nil && s.job.Status.Phase == v1beta1.JobRunning {
				s.brought()
			}
			s.now = s.now.Add(max(s.plan.again, time.Second))
		}
		t.Errorf("it does not end: %+v\nof %s", s.upgrade.Status, hostile.Text(s.upgrade.Spec))
	})
}

// over says whether one more look is the last.
func (s *scene) over() bool {
	gone := s.upgrade.DeletionTimestamp != nil && len(s.upgrade.Finalizers) == 0
	return hasEnded(s.upgrade) || s.upgrade.Status.Phase == v1beta1.UpgradeWaiting || gone
}

// written is all that a user may write.
type written struct {
	Upgrade v1beta1.StorageUpgradeSpec
	Cluster v1beta1.StorageClusterSpec
	Log     string
	Broken  bool
	Deleted bool
}

func anyUpgrade(t *testing.T, choices []byte) *scene {
	t.Helper()
	s := newScene(t)
	w := written{Upgrade: s.upgrade.Spec, Log: s.log}
	hostile.Fill(choices, &w)
	s.upgrade.Spec, s.cluster.Spec = w.Upgrade, w.Cluster
	if w.Log != "" {
		s.log = w.Log
	}
	if w.Broken {
		s.broken["b"] = strings.Repeat("it does not start; ", 3000)
	}
	if w.Deleted {
		s.upgrade.DeletionTimestamp = &metav1.Time{Time: begun}
	}
	s.observed.apps.blockers = nil
	s.apps = []application{{kind: "Deployment", namespace: "a", name: "b", replicas: 3}}
	return s
}

func (s *scene) shaped() {
	s.Helper()
	for _, wrong := range hostile.WrongConditions(s.upgrade.Status.Conditions) {
		s.Errorf("%s\nof %s", wrong, hostile.Text(s.upgrade.Spec))
	}
	for _, e := range s.plan.events {
		if e.reason == "" || strings.ContainsAny(e.reason, " \n") || e.message == "" || !utf8.ValidString(e.message) {
			s.Errorf("the event %q: %.200q", e.reason, e.message)
		}
	}
	if a := s.plan.apply; a != nil && (a.nodes == "" || a.controller == "") {
		s.Errorf("it brings %q to the nodes and %q to the controller", a.nodes, a.controller)
	}
	if s.plan.pause && s.plan.unpause {
		s.Error("it pauses and goes on at once")
	}
}

// wantNothingLeft wants that the cluster is not left paused or stopped by an upgrade that has ended.
func (s *scene) wantNothingLeft() {
	s.Helper()
	if s.cluster.Annotations[v1beta1.PausedByAnnotation] != "" {
		s.Error("the cluster is still paused by it")
	}
	if len(s.upgrade.Finalizers) > 0 && hasEnded(s.upgrade) {
		s.Error("its finalizer is left")
	}
	if s.upgrade.Status.Completed && s.nodes.image != s.upgrade.Status.To {
		s.Errorf("it is complete, and the nodes run %.80q", s.nodes.image)
	}
	if s.apps[0].replicas == 0 {
		s.Error("what it stopped is not started again")
	}
}
