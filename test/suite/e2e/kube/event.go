package kube

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AwaitEvent waits until an event with all the words is on an object of the test's namespace, and returns it.
func (s *Space) AwaitEvent(object, reason string, words ...string) *corev1.Event {
	s.t.Helper()
	return s.awaitEvent(s.Namespace, object, reason, words)
}

// AwaitClusterEvent is AwaitEvent for an object without a namespace.
func (s *Space) AwaitClusterEvent(object, reason string, words ...string) *corev1.Event {
	s.t.Helper()
	return s.awaitEvent(metav1.NamespaceDefault, object, reason, words)
}

func (s *Space) awaitEvent(namespace, object, reason string, words []string) *corev1.Event {
	s.t.Helper()
	var found *corev1.Event
	about := metav1.ListOptions{FieldSelector: "involvedObject.name=" + object + ",reason=" + reason}
	Await(s, s.Client.CoreV1().Events(namespace), about, object+" to get the event "+reason+" with "+strings.Join(words, ", "),
		func(all []*corev1.Event) (bool, error) {
			found = eventWith(all, words)
			return found != nil, nil
		})
	return found
}

// eventWith returns an event whose message has all the words; nil if there is none.
func eventWith(all []*corev1.Event, words []string) *corev1.Event {
	for _, e := range all {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(e.Message, word) }) {
			return e
		}
	}
	return nil
}
