package kube

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestEvent_IsFoundByAllRequiredWords(t *testing.T) {
	said := func(message string) *corev1.Event { return &corev1.Event{Message: message} }
	all := []*corev1.Event{said("node1 is full"), said("node2 is full, node1 is down")}
	for words, want := range map[string]*corev1.Event{"full": all[0], "node1 down": all[1], "node2": all[1], "node3": nil, "": all[0]} {
		if got := eventWith(all, strings.Fields(words)); got != want {
			t.Errorf("with %q there is %v", words, got)
		}
	}
}

func TestEvent_OfAClusterScopedObjectIsInTheDefaultNamespace(t *testing.T) {
	c, client := imitation(t)
	for namespace, message := range map[string]string{"test": "of the test", metav1.NamespaceDefault: "of the cluster"} {
		event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: namespace}, Message: message}
		if err := client.Tracker().Add(event); err != nil {
			t.Fatal(err)
		}
	}
	s := &Space{Cluster: c, Namespace: "test", t: t}
	if got := s.AwaitEvent("pod", "Failed", "of").Message; got != "of the test" {
		t.Errorf("of an object in the namespace it found %q", got)
	}
	if got := s.AwaitClusterEvent("node", "Failed", "of").Message; got != "of the cluster" {
		t.Errorf("of an object without one it found %q", got)
	}
}
