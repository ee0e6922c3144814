package kube

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// LongestMessage is short enough to be read; a condition may have 32768 bytes.
	LongestMessage = 2000
	// LongestEvent is what the API server takes of an event, less what is put before it.
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

// Shorten keeps the beginning of what is too long, and no half of a character, so that the longest is not exceeded.
func Shorten(message string, longest int) string {
	if len(message) <= longest {
		return message
	}
	return strings.ToValidUTF8(message[:max(0, longest-len(cutOff))], "") + cutOff
}
