package main

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestNode_UsesAnIncompleteVolumeOnlyWhileItsContentIsBrought(t *testing.T) {
	s, ours, api := cephNode(t)
	isComplete := checkComplete(s.api.Volumes())
	spec := v1beta1.VolumeSpec{Name: "populated", Node: "a", PopulatedBy: v1beta1.PopulatedByPod, SourceRef: &v1beta1.SourceReference{Kind: v1beta1.SourceVolume, Name: "source"}}
	check.Got(s.api.Volumes().Create(t.Context(), &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: spec.Name}, Spec: spec}, metav1.CreateOptions{}))(t)
	putVolume(t, ours, "found", "a", v1beta1.VolumeStatus{})
	if err := isComplete(t.Context(), "populated"); err != nil {
		t.Errorf("by the pod that populates it: %v", err)
	}
	if err := isComplete(t.Context(), "found"); !errors.Is(err, backend.ErrPrecondition) || !strings.Contains(err.Error(), "holdfast volumes delete found") {
		t.Errorf("found again: %v", err)
	}
	if err := isComplete(t.Context(), "forgotten"); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("without an object: %v", err)
	}
	api.Close()
	if err := isComplete(t.Context(), "populated"); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("without the API server: %v", err)
	}
}

func TestNodeStorage_SaysThatAVolumeOfACephPoolIsIncomplete(t *testing.T) {
	s, ours, _ := cephNode(t)
	made := metav1.NowMicro()
	status := v1beta1.VolumeStatus{CreationTime: &made}
	putVolume(t, ours, "whole", v1beta1.NodeOfCephPool("block"), status)
	status.Conditions = []metav1.Condition{{Type: v1beta1.CompleteCondition, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonIncomplete, LastTransitionTime: metav1.Now()}}
	putVolume(t, ours, "part", v1beta1.NodeOfCephPool("block"), status)
	for id, want := range map[backend.ID]bool{"whole": false, "part": true} {
		if v, err := s.Get(t.Context(), id); err != nil || v.Incomplete != want {
			t.Errorf("%s: %+v, %v", id, v, err)
		}
	}
}
