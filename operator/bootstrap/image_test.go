package bootstrap

import (
	"errors"
	"testing"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestImage_IsReadFromTheProgramsPod(t *testing.T) {
	pod := func(name string, containers ...core.Container) *core.Pod {
		return &core.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "storage"}, Spec: core.PodSpec{Containers: containers}}
	}
	kube := fake.NewClientset(
		pod("controller", core.Container{Name: "beside", Image: "r/b:1"}, core.Container{Name: "holdfast", Image: "r/h:1"}),
		pod("other", core.Container{Name: "beside", Image: "r/b:1"}),
	)
	for name, want := range map[string]string{"controller": "r/h:1", "other": "", "laptop": ""} {
		if got, err := Image(t.Context(), kube, "storage", name); err != nil || string(got) != want {
			t.Errorf("%s runs %q, not %q: %v", name, got, want, err)
		}
	}
	refusal := errors.New("forbidden")
	kube.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refusal })
	if _, err := Image(t.Context(), kube, "storage", "controller"); !errors.Is(err, refusal) {
		t.Errorf("it is %v", err)
	}
}
