package kube

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func pod(name string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "test", UID: "uid"},
		Status:     corev1.PodStatus{Phase: phase},
	}
}

func TestAwait_FailureReportsStateAndEvents(t *testing.T) {
	stuck := pod("stuck", corev1.PodPending)
	stuck.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "no node has room"}}
	stuck.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}}
	client := fake.NewClientset(stuck)
	client.PrependReactor("list", "events", func(action clienttesting.Action) (bool, runtime.Object, error) {
		of := action.(clienttesting.ListAction).GetListRestrictions().Fields
		if !of.Matches(fields.Set{"involvedObject.uid": string(stuck.UID)}) {
			return true, &corev1.EventList{}, nil
		}
		return true, &corev1.EventList{Items: []corev1.Event{{
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "stuck"},
			Type:           corev1.EventTypeWarning, Reason: "FailedMount", Message: "no such\ndevice", Count: 3,
		}}}, nil
	})
	failed := try(t, "TestX", func(t testing.TB) {
		s := &Space{Cluster: &Cluster{Client: client}, Namespace: "test", t: t}
		AwaitOne(s, client.CoreV1().Pods("test"), "stuck", "to be ready", func(*corev1.Pod) (bool, error) {
			return false, errors.New("hopeless")
		})
	})
	for _, want := range []string{
		"waiting for stuck to be ready: hopeless", "seen last: pod stuck: Pending",
		"PodScheduled False Unschedulable no node has room", `container main restarted 0 {"waiting":{"reason":"ContainerCreating"}}`,
		"3x Warning FailedMount pod/stuck: no such device",
	} {
		if !failed.failed || !strings.Contains(failed.said.String(), want) {
			t.Errorf("there is no %q in %s", want, failed.said.String())
		}
	}
}
