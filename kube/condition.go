package kube

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

const (
	// LongestMessage keeps conditions readable; the API server allows 32768 bytes.
	LongestMessage = 2000
	// LongestEvent is the limit of the API server for the message of an event, less our prefix.
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

// Ready derives the condition Ready from Available, Degraded and Progressing: true if all is as the spec says. It has
// their observed generation.
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

// sameCondition maps a condition of an object that runs to completion to the one that kstatus reads.
var sameCondition = map[string]string{v1beta1.CompleteCondition: v1beta1.ReadyCondition, v1beta1.FailedCondition: v1beta1.StalledCondition}

// SetRunCondition sets Complete together with Ready, or Failed together with Stalled.
func SetRunCondition(conditions *[]metav1.Condition, c metav1.Condition) {
	if stalled := meta.FindStatusCondition(*conditions, v1beta1.StalledCondition); stalled != nil && stalled.Reason == v1beta1.ReasonUnreadable {
		meta.RemoveStatusCondition(conditions, v1beta1.StalledCondition) // it can be decoded again
	}
	meta.SetStatusCondition(conditions, c)
	c.Type = sameCondition[c.Type]
	meta.SetStatusCondition(conditions, c)
}

// Shorten truncates a text to at most longest bytes, between characters.
func Shorten(message string, longest int) string {
	if len(message) <= longest {
		return message
	}
	return strings.ToValidUTF8(message[:max(0, longest-len(cutOff))], "") + cutOff
}

// Few joins the first texts of a list and counts the rest, in words such as " and %d more".
func Few(all []string, most int, joint, rest string) string {
	if len(all) <= most {
		return strings.Join(all, joint)
	}
	return strings.Join(all[:most], joint) + fmt.Sprintf(rest, len(all)-most)
}

// Count is a number of things, in words.
func Count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// Because joins a text to what it explains; nothing if there is none.
func Because(joint, why string) string {
	if why == "" {
		return ""
	}
	return joint + why
}

// Stall sets Stalled, in the word of kstatus, while Degraded is true for one of these reasons: then nothing goes on before a
// user acts.
func Stall(conditions *[]metav1.Condition, reasons ...string) {
	c := meta.FindStatusCondition(*conditions, v1beta1.DegradedCondition)
	if c == nil || c.Status != metav1.ConditionTrue || !slices.Contains(reasons, c.Reason) {
		meta.RemoveStatusCondition(conditions, v1beta1.StalledCondition)
		return
	}
	stalled := *c
	stalled.Type = v1beta1.StalledCondition
	meta.SetStatusCondition(conditions, stalled)
}
