package volume_test

import (
	"strings"
	"testing"
	"testing/synctest"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/inmemory"
)

// pod uses a claim.
func (w *world) pod(name, claim string, phase core.PodPhase) {
	w.Helper()
	p := &core.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: core.PodStatus{Phase: phase}, Spec: core.PodSpec{Volumes: []core.Volume{
		{Name: "other", VolumeSource: core.VolumeSource{EmptyDir: &core.EmptyDirVolumeSource{}}},
		{Name: "data", VolumeSource: core.VolumeSource{PersistentVolumeClaim: &core.PersistentVolumeClaimVolumeSource{ClaimName: claim}}},
	}}}
	check.Got(w.Theirs.CoreV1().Pods("shop").Create(w.Context(), p, metav1.CreateOptions{}))(w)
}

func TestHealth_UsersOfAVolumeGetOneEventPerFault(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.Puppet("a", gib)
		w.Start()
		w.waiting("data", "ours", "1Gi")
		w.pod("uses", "data", core.PodRunning)
		w.pod("ended", "data", core.PodSucceeded)
		w.pod("stranger", "other", core.PodRunning)
		check.Got(w.Volumes().Create(t.Context(), &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: v1beta1.VolumeSpec{
			Name: "v", Node: "a", ClaimRef: v1beta1.ReferenceTo("shop/data"), Size: v1beta1.VolumeSize{Required: resource.NewQuantity(mib, resource.BinarySI)},
		}}, metav1.CreateOptions{}))(t)
		w.leads()
		is := func(status metav1.ConditionStatus, reason, message string) {
			w.Answer("v", func(v *v1beta1.Volume) {
				inmemory.Made(v)
				v.Status.Conditions = []metav1.Condition{{Type: v1beta1.HealthyCondition, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.Now()}}
			})
		}
		is(metav1.ConditionTrue, v1beta1.ReasonHealthy, "")
		for _, reason := range []string{v1beta1.ReasonFileSystem, v1beta1.ReasonNotGrown, v1beta1.ReasonDevice} {
			is(metav1.ConditionFalse, reason, "1 error")
			for _, want := range []string{"Warning " + reason + " volume v: ", "Warning " + reason + " claim data, volume v: "} {
				if event := <-w.Events.Events; !strings.HasPrefix(event, want) {
					t.Errorf("the event is %q, want %q", event, want)
				}
			}
			is(metav1.ConditionFalse, reason, "2 errors") // which is no news
		}
	})
}

func TestHealth_VolumeOfAnAgentWarnsNoClaimThatHasAnother(t *testing.T) {
	for name, handle := range map[string]string{"the claim's": "v", "another's": "w", "no": ""} {
		inBubble(t, func(t *testing.T, w *world) {
			w.Puppet("a", gib)
			w.Start()
			claim := w.waiting("data", "ours", "1Gi")
			if handle != "" {
				pv := &core.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: core.PersistentVolumeSpec{
					ClaimRef: &core.ObjectReference{Namespace: "shop", Name: "data", UID: claim.UID}, PersistentVolumeSource: core.PersistentVolumeSource{CSI: &core.CSIPersistentVolumeSource{Driver: v1beta1.DriverName, VolumeHandle: handle}},
				}}
				check.Got(w.Theirs.CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{}))(t)
				claim.Spec.VolumeName = "pv"
				check.Got(w.Theirs.CoreV1().PersistentVolumeClaims("shop").Update(t.Context(), claim, metav1.UpdateOptions{}))(t)
			}
			check.Got(w.Volumes().Create(t.Context(), &v1beta1.Volume{
				ObjectMeta: metav1.ObjectMeta{Name: "v", Labels: map[string]string{v1beta1.AdoptedLabel: "true"}}, Spec: v1beta1.VolumeSpec{Name: "v", Node: "a", ClaimRef: v1beta1.ReferenceTo("shop/data")},
			}, metav1.CreateOptions{}))(t)
			w.leads()
			w.Answer("v", func(v *v1beta1.Volume) {
				inmemory.Made(v)
				v.Status.Conditions = []metav1.Condition{{Type: v1beta1.HealthyCondition, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonDevice, Message: "click here", LastTransitionTime: metav1.Now()}}
			})
			synctest.Wait()
			if got := len(w.Events.Events); got != 0 && handle != "v" || got != 1 && handle == "v" {
				t.Errorf("the claim with %s PersistentVolume gets %d events", name, got)
			}
		})
	}
}
