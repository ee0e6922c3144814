package kube

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

const (
	// LongestMessage is short enough to be read; a condition may have 32768 bytes.
	LongestMessage = 2000
	// LongestEvent is the maximum of the API server for an event, less the prefix.
	LongestEvent = 900

	cutOff = " ..."
)

// NewCondition returns a condition that is true or false.
func NewCondition(kind string, status bool, reason, message string) metav1.Condition {
	c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message}
	if status {
		c.Status = metav1.ConditionTrue
	}
	return c
}

// Ready is the condition Ready that follows from Available, Degraded and Progressing: all is as the spec says. It is about
// the same generation.
func Ready(conditions []metav1.Condition) (ready metav1.Condition) {
	available := meta.FindStatusCondition(conditions, v1beta1.AvailableCondition)
	for _, c := range []struct {
		*metav1.Condition
		well metav1.ConditionStatus
	}{
		{available, metav1.ConditionTrue},
		{meta.FindStatusCondition(conditions, v1beta1.DegradedCondition), metav1.ConditionFalse},
		{meta.FindStatusCondition(conditions, v1beta1.ProgressingCondition), metav1.ConditionFalse},
	} {
		if c.Status != c.well {
			ready = NewCondition(v1beta1.ReadyCondition, false, c.Reason, c.Message)
			ready.ObservedGeneration = c.ObservedGeneration
			return ready
		}
	}
	ready = NewCondition(v1beta1.ReadyCondition, true, v1beta1.ReasonReady, available.Message)
	ready.ObservedGeneration = available.ObservedGeneration
	return ready
}

// sameCondition is, by the condition of something that runs to its end, the one that kstatus reads.
var sameCondition = map[string]string{v1beta1.CompleteCondition: v1beta1.ReadyCondition, v1beta1.FailedCondition: v1beta1.StalledCondition}

// SetRunCondition sets Complete and with it Ready, or Failed and with it Stalled.
func SetRunCondition(conditions *[]metav1.Condition, c metav1.Condition) {
	meta.SetStatusCondition(conditions, c)
	c.Type = sameCondition[c.Type]
	meta.SetStatusCondition(conditions, c)
}

// Shorten cuts a text to at most longest bytes, between characters.
func Shorten(message string, longest int) string {
	if len(message) <= longest {
		return message
	}
	return strings.ToValidUTF8(message[:max(0, longest-len(cutOff))], "") + cutOff
}
