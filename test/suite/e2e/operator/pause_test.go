package operator

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

func TestPause_NothingIsChangedAndTheStatusStaysFresh(t *testing.T) {
	a := administer(t)
	a.ask(func(spec *v1beta1.StorageClusterSpec) { spec.Paused = true })
	a.await("to be paused", func(c *v1beta1.StorageCluster) bool {
		return c.Status.Phase == v1beta1.ClusterPaused && says(c, v1beta1.ProgressingCondition, "Paused")
	})
	services := a.Client.CoreV1().Services(kube.System)
	if err := services.Delete(t.Context(), "holdfast", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	a.ask(func(spec *v1beta1.StorageClusterSpec) { // and a change of the spec waits too
		spec.StorageClasses = []v1beta1.StorageClassSpec{{Name: "holdfast", Default: true}, {Name: "e2e-paused"}}
	})

	s := begin(t)
	s.Claim("data", "64Mi")
	s.Run("user", kube.Mount("data", "/data"), kube.Script("touch /data/file"))
	// By now all of it would have been done: the status counts what came later.
	c := a.await("to count the volume", func(c *v1beta1.StorageCluster) bool { return c.Status.Volumes > 0 })
	if c.Status.Phase != v1beta1.ClusterPaused || c.Status.DesiredNodes == 0 {
		t.Errorf("the status is %s", inWords(c.Status))
	}
	if there, err := exists(t.Context(), a.Dynamic.Resource(corev1.SchemeGroupVersion.WithResource("services")).Namespace(kube.System), "holdfast"); there || err != nil {
		t.Errorf("the Service was made again: %t, %v", there, err)
	}
	if has := a.classes(); has["e2e-paused"].Name != "" {
		t.Errorf("the classes were changed: %v", has)
	}

	a.change(func(spec *v1beta1.StorageClusterSpec) { spec.Paused = false })
	kube.AwaitOne(a.Space, services, "holdfast", "to be made again", func(*corev1.Service) (bool, error) { return true, nil })
	if has := a.classes(); len(has) != 2 || has["e2e-paused"].Name == "" {
		t.Errorf("the classes were not changed: %v", has)
	}
}
