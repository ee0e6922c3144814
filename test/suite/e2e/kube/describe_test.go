package kube

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestEvent_OrderIsThatOfTheLastOccurrence(t *testing.T) {
	at := func(second int) time.Time { return time.Date(2030, 1, 2, 3, 4, second, 0, time.UTC) }
	lines := eventLines([]corev1.Event{
		{Reason: "series", EventTime: metav1.NewMicroTime(at(1)), Series: &corev1.EventSeries{Count: 7, LastObservedTime: metav1.NewMicroTime(at(40))}},
		{Reason: "old-style", LastTimestamp: metav1.NewTime(at(30)), FirstTimestamp: metav1.NewTime(at(1)), Count: 2},
		{Reason: "new-style", EventTime: metav1.NewMicroTime(at(20))},
		{Reason: "bare", ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(at(10))}},
	})
	want := []string{"03:04:10.000 1x  bare", "03:04:20.000 1x  new-style", "03:04:30.000 2x  old-style", "03:04:40.000 7x  series"}
	if !slices.EqualFunc(lines, want, strings.HasPrefix) {
		t.Errorf("lines %q", lines)
	}
}

func TestDescribe_TerminatingObjectNamesItsFinalizers(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "c", DeletionTimestamp: &metav1.Time{Time: time.Now()}, Finalizers: []string{"pvc-protection"}},
		Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}
	if got := state(claim); got != "c: being deleted, finalizers [pvc-protection]; Bound" {
		t.Error(got)
	}
}

func TestDescribe_ObjectWithoutPhaseAndConditionsShowsItsStatus(t *testing.T) {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "s"},
		Status:     corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}}},
	}
	if got := state(service); !strings.Contains(got, "192.0.2.1") {
		t.Error(got)
	}
}
