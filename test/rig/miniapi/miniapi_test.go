package miniapi

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	client "github.com/holdfast-storage/holdfast/api/client/clientset"
	typed "github.com/holdfast-storage/holdfast/api/client/clientset/typed/api/v1beta1"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func begin(t *testing.T) (*Server, typed.VolumeInterface, *v1beta1.Volume) {
	t.Helper()
	s := New(t)
	volumes := client.NewForConfigOrDie(s.Config()).HoldfastV1beta1().Volumes()
	v := check.Got(volumes.Create(t.Context(), &v1beta1.Volume{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Finalizers: []string{v1beta1.AgentFinalizer}},
		Spec:       v1beta1.VolumeSpec{Name: "a", Node: "n"}, Status: v1beta1.VolumeStatus{Phase: v1beta1.PhaseReady},
	}, metav1.CreateOptions{}))(t)
	return s, volumes, v
}

func TestObject_SpecAndStatusAreWrittenSeparately(t *testing.T) {
	_, volumes, v := begin(t)
	v.Status.Phase = v1beta1.PhaseReady
	size := resource.MustParse("1Gi")
	v.Spec.Size.Required = &size
	status, err := volumes.UpdateStatus(t.Context(), v, metav1.UpdateOptions{})
	if err != nil || status.Status.Phase != v1beta1.PhaseReady || status.Spec.Size.Required != nil || status.Generation != 1 {
		t.Fatalf("got %+v, %v", status, err)
	}
	if _, err := volumes.Update(t.Context(), v, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("a write over a newer version: %v", err)
	}
	status.Status.Phase, status.Spec.Size.Required = v1beta1.PhaseLost, &size
	spec, err := volumes.Update(t.Context(), status, metav1.UpdateOptions{})
	if err != nil || spec.Status.Phase != v1beta1.PhaseReady || spec.Spec.Size.Required == nil || spec.Generation != 2 {
		t.Errorf("got %+v, %v", spec, err)
	}
	same, err := volumes.Update(t.Context(), spec, metav1.UpdateOptions{})
	if err != nil || same.ResourceVersion != spec.ResourceVersion {
		t.Errorf("writing nothing new: %+v, %v", same, err)
	}
}
