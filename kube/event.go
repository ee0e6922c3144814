package kube

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
)

// Event is one occurrence that concerns an object.
type Event struct {
	// About is an object of kind Kind.
	About metav1.Object
	Kind  schema.GroupVersionKind
	// Type is Normal or Warning.
	Type string
	// Reason and the object's UID determine the name of the event.
	Reason  string
	Message string
}

// longestMessage is the limit of the API server.
const longestMessage = 1024

// RecordOnce creates an event at most once, even across restarts: its name follows from object and reason, so that a
// second create finds it.
func RecordOnce(ctx context.Context, client kubernetes.Interface, component string, e Event) error {
	now := metav1.NewTime(time.Now())
	namespace := cmp.Or(e.About.GetNamespace(), metav1.NamespaceDefault)
	_, err := client.CoreV1().Events(namespace).Create(ctx, &core.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s.%s.%s", e.About.GetName(), e.About.GetUID(), strings.ToLower(e.Reason))},
		InvolvedObject: core.ObjectReference{
			APIVersion: e.Kind.GroupVersion().String(), Kind: e.Kind.Kind, Namespace: e.About.GetNamespace(), Name: e.About.GetName(), UID: e.About.GetUID(),
			ResourceVersion: e.About.GetResourceVersion(),
		},
		Type: e.Type, Reason: e.Reason, Message: Shorten(e.Message, longestMessage),
		Source: core.EventSource{Component: component}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("writing the event %s of %s %s: %w", e.Reason, e.Kind.Kind, e.About.GetName(), err)
	}
	return nil
}

// LastOccurrence returns when an event occurred last.
func LastOccurrence(e *core.Event) time.Time {
	last := e.LastTimestamp.Time
	for _, t := range []time.Time{e.EventTime.Time, e.FirstTimestamp.Time, e.CreationTimestamp.Time} {
		if last.IsZero() {
			last = t
		}
	}
	if e.Series != nil && e.Series.LastObservedTime.After(last) {
		last = e.Series.LastObservedTime.Time
	}
	return last
}

// NoEvents is an event recorder that discards all events.
var NoEvents record.EventRecorder = &record.FakeRecorder{}
