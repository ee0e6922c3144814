package operator

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

func TestAttach_VolumesInUseSurviveItsChangeAndCanBeDeletedAfterIt(t *testing.T) {
	hostfs.Long(t)
	s := begin(t) // ends last, when no pod attaches any more
	a := administer(t)
	a.load("csi-attacher")
	use(s, "before")
	a.change(func(spec *v1beta1.StorageClusterSpec) { spec.CSI.AttachRequired = true })
	use(s, "with")
	a.awaitAttached(s.Volume("with").Name, true)
	a.change(func(spec *v1beta1.StorageClusterSpec) { spec.CSI.AttachRequired = false })
	for _, name := range []string{"before", "with"} {
		volume := s.Volume(name).Name
		if restarts := s.Ready(name).Status.ContainerStatuses[0].RestartCount; restarts > 0 {
			t.Errorf("pod %s failed %d times", name, restarts)
		}
		s.DeletePod(name)
		s.DeleteClaim(name)
		kube.AwaitNone(s, s.Client.CoreV1().PersistentVolumes(), kube.Named(volume), "volume "+volume)
	}
}

// awaitAttached waits until the cluster says that a volume is attached, or that it is not.
func (a *admin) awaitAttached(volume string, want bool) {
	a.t.Helper()
	kube.Await(a.Space, a.Client.StorageV1().VolumeAttachments(), metav1.ListOptions{}, fmt.Sprintf("volume %s to be attached: %t", volume, want), func(all []*storagev1.VolumeAttachment) (bool, error) {
		attached := slices.ContainsFunc(all, func(o *storagev1.VolumeAttachment) bool {
			name := o.Spec.Source.PersistentVolumeName
			return name != nil && *name == volume && (o.Status.Attached || !want)
		})
		return attached == want, nil
	})
}

func TestAttach_NodeTakesNoMoreVolumesThanItsLimit(t *testing.T) {
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

// load brings the image of a sidecar, which the usual spec does not need, to all nodes.
func (a *admin) load(name string) {
	a.t.Helper()
	ctx := context.WithoutCancel(a.t.Context())
	out, err := exec.CommandContext(ctx, "../../../../images/build", "sidecars").Output()
	if err != nil {
		a.t.Fatalf("the images of the sidecars: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		if parts := strings.Fields(line); len(parts) == 3 && parts[0] == name {
			if _, err = a.Do(ctx, "load-image", parts[2]); err != nil {
				a.t.Fatal(err)
			}
			return
		}
	}
	a.t.Fatal(fmt.Errorf("images/build made no image %s: %s", name, out))
}
