package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	holdfast "github.com/holdfast-storage/holdfast/kube"
)

// describe prints the state of objects and what happened to them, for a reader who has only this text.
func (c *Cluster) describe(objects ...Object) string {
	if len(objects) == 0 {
		return "seen last: no such object"
	}
	// The test's own time may be over.
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var text strings.Builder
	for _, object := range objects {
		fmt.Fprintf(&text, "seen last: %s %s\n", kindOf(object), state(object))
		events, err := c.Client.CoreV1().Events("").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(object.GetUID())})
		if err != nil {
			fmt.Fprintf(&text, "  its events are not known: %v\n", err)
			continue
		}
		for _, line := range eventLines(events.Items) {
			fmt.Fprintf(&text, "  %s\n", line)
		}
	}
	return text.String()
}

// state prints an object's name and its status.
func state(object Object) string {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return fmt.Sprintf("%s: %v", object.GetName(), err)
	}
	status, err := json.Marshal(content["status"])
	if err != nil {
		return fmt.Sprintf("%s: %v", object.GetName(), err)
	}
	if object.GetDeletionTimestamp() != nil {
		return fmt.Sprintf("%s: being deleted, finalizers %v; %s", object.GetName(), object.GetFinalizers(), status)
	}
	return fmt.Sprintf("%s: %s", object.GetName(), status)
}

// eventLines are events as lines, the oldest first.
func eventLines(events []corev1.Event) []string {
	slices.SortStableFunc(events, func(a, b corev1.Event) int {
		return cmp.Or(holdfast.LastOccurrence(&a).Compare(holdfast.LastOccurrence(&b)), strings.Compare(a.Name, b.Name))
	})
	lines := make([]string, len(events))
	for i, event := range events {
		about := event.InvolvedObject
		lines[i] = fmt.Sprintf("%s %dx %s %s %s/%s: %s", holdfast.LastOccurrence(&event).UTC().Format("15:04:05.000"), times(event),
			event.Type, event.Reason, strings.ToLower(about.Kind), about.Name, strings.ReplaceAll(event.Message, "\n", " "))
	}
	return lines
}

func times(event corev1.Event) int32 {
	if event.Series != nil {
		return event.Series.Count
	}
	return max(event.Count, 1)
}
