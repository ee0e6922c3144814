package operator

import (
	"context"
	"fmt"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

func TestLimit_NodeTakesNoMoreVolumesThanItsLimit(t *testing.T) {
	hostfs.Long(t)
	a := administer(t)
	_, other := twoNodes(t)
	a.limit(2)
	s := begin(t)
	for _, name := range []string{"a", "b"} {
		use(s, name)
	}
	s.Claim("c", "16Mi")
	s.Pod("c", kube.Mount("c", "/data"))
	s.AwaitEvent("c", "FailedScheduling", "max volume count")
	s.Claim("d", "16Mi")
	s.Pod("d", kube.Mount("d", "/data"), kube.Preferring(s.Home))
	if at := s.Ready("d").Spec.NodeName; at == s.Home {
		t.Errorf("a pod that may run on %s runs where no more volumes may be", other)
	}
	s.DeletePod("a")
	s.Ready("c")
	a.limit(0) // as the next test expects it of the kubelets
}

// limit changes how many volumes each node takes, and waits until the kubelets know. 0 is no limit.
func (a *admin) limit(volumes int64) {
	a.t.Helper()
	a.change(func(spec *v1beta1.StorageClusterSpec) { spec.CSI.MaxVolumesPerNode = volumes })
	a.eventually("the kubelets to know the limit", func(ctx context.Context) error {
		nodes, err := a.Client.StorageV1().CSINodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, n := range nodes.Items {
			if takes(&n) != volumes {
				return fmt.Errorf("node %s says it takes %d volumes", n.Name, takes(&n))
			}
		}
		return nil
	})
}

// takes is how many volumes a kubelet says its node takes; 0 is no limit, and -1 that it knows no driver.
func takes(n *storagev1.CSINode) int64 {
	for _, d := range n.Spec.Drivers {
		if d.Name == v1beta1.DriverName {
			if d.Allocatable == nil || d.Allocatable.Count == nil {
				return 0
			}
			return int64(*d.Allocatable.Count)
		}
	}
	return -1
}
