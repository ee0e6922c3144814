package cluster

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

func TestPopulated_WhatItsAgentCannotDoNowDoesNotRemoveIt(t *testing.T) {
	created := metav1.NowMicro()
	v := &v1beta1.Volume{Spec: v1beta1.VolumeSpec{PopulatedBy: v1beta1.PopulatedByPod}, Status: v1beta1.VolumeStatus{
		CreationTime: &created, Copy: &v1beta1.VolumeCopy{Phase: v1beta1.CopyComplete}, Error: &v1beta1.Error{Code: v1beta1.ErrorUnavailable, Message: "no answer"},
	}}
	if s := volumeState(v); s.made || s.failure() != nil || !strings.HasSuffix(s.copying, "no answer") {
		t.Errorf("it is %+v", s)
	}
	v.Status.Copy.Phase = v1beta1.CopyFailed
	if s := volumeState(v); s.failure() == nil {
		t.Errorf("of a failed copy it is %+v", s)
	}
}
