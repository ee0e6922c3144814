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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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

// state prints an object's name, phase, conditions and containers, or its whole status where it has none of them.
func state(object Object) string {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return fmt.Sprintf("%s: %v", object.GetName(), err)
	}
	parts := []string{}
	if object.GetDeletionTimestamp() != nil {
		parts = append(parts, fmt.Sprintf("being deleted, finalizers %v", object.GetFinalizers()))
	}
	if phase, _, _ := unstructured.NestedString(content, "status", "phase"); phase != "" {
		parts = append(parts, phase)
	}
	for _, condition := range statuses(content, "conditions") {
		parts = append(parts, words(condition["type"], condition["status"], condition["reason"], condition["message"]))
	}
	for _, list := range []string{"initContainerStatuses", "containerStatuses"} {
		for _, container := range statuses(content, list) {
			parts = append(parts, words("container", container["name"], "restarted", container["restartCount"], compact(container["state"])))
		}
	}
	if len(parts) == 0 {
		parts = append(parts, compact(content["status"]))
	}
	return object.GetName() + ": " + strings.Join(parts, "; ")
}

// statuses returns the elements of a list in the status.
func statuses(content map[string]any, list string) []map[string]any {
	items, _, _ := unstructured.NestedSlice(content, "status", list) // without a status there are none
	var found []map[string]any
	for _, item := range items {
		if item, ok := item.(map[string]any); ok {
			found = append(found, item)
		}
	}
	return found
}

// words joins what is set.
func words(values ...any) string {
	var set []string
	for _, value := range values {
		if value != nil && value != "" {
			set = append(set, fmt.Sprint(value))
		}
	}
	return strings.Join(set, " ")
}

func compact(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(text)
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
