package operator

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

func TestHeal_DeletedWorkloadsReturnAndNoVolumeIsAffected(t *testing.T) {
	hostfs.Long(t)
	a := administer(t)
	s := begin(t)
	s.Claim("data", "64Mi")
	s.Pod("user", kube.Mount("data", "/data"), kube.Script("while true; do date >>/data/now; sync /data/now; sleep 0.2; done"))
	before := s.Ready("user")
	healed := 0
	for _, o := range a.owned() {
		if o.GetKind() != "DaemonSet" && o.GetKind() != "Deployment" {
			continue
		}
		source := o.Source(a.Dynamic)
		if err := source.Delete(t.Context(), o.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		kube.AwaitOne(a.Space, source, o.GetName(), "to be made again", func(now *unstructured.Unstructured) (bool, error) {
			return now.GetUID() != o.GetUID(), nil
		})
		a.awaitReconciled()
		healed++
	}
	if healed != 3 { // of the nodes, the controller and the snapshots
		t.Errorf("%d workloads were deleted, want 3", healed)
	}
	if now := s.Ready("user"); now.UID != before.UID || now.Status.ContainerStatuses[0].RestartCount > 0 {
		t.Errorf("the pod with the volume was restarted: %+v", now.Status.ContainerStatuses)
	}
	s.Claim("next", "64Mi")
	s.Run("next", kube.Mount("next", "/data"), kube.Script("touch /data/file"))
}
