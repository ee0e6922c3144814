package accidents

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// writtenAgain waits until each volume has another object, which is ready.
func (p *precious) writtenAgain(before map[string]types.UID) {
	p.t.Helper()
	for name, uid := range before {
		kube.AwaitOne(p.Space, p.Holdfast("volumes"), name, "to be written again", func(o *unstructured.Unstructured) (bool, error) {
			phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
			return o.GetUID() != uid && phase == string(v1beta1.PhaseReady), nil
		})
	}
}

func TestVolumeObjects_DeletedByHandAreWrittenAgainAndNothingIsLost(t *testing.T) {
	p := keep(t, begin(t))
	p.killing(func(p *precious, kill func()) {
		volumes := p.volumes(idle, used, raw)
		before := p.uids(volumes)
		cluster.MustKubectl(p.t, append([]string{"delete", "--wait=false", "volumes.holdfast.dev"}, volumes...)...)
		kill()
		p.writtenAgain(before)
		for _, name := range volumes {
			e := p.AwaitClusterEvent(name, v1beta1.ReasonForgotten)
			if !strings.Contains(e.Message, "holdfast volumes delete "+name) {
				p.t.Errorf("the event of %s says %q", name, e.Message)
			}
		}
	})
}

func TestVolumeObjects_DeletedWhileAPodUsesTheirVolumesLoseNothingWhenItEnds(t *testing.T) {
	p := keep(t, begin(t))
	p.killing(func(p *precious, kill func()) {
		volumes := p.volumes(used)
		before := p.uids(volumes)
		cluster.MustKubectl(p.t, "delete", "--wait=false", "volumes.holdfast.dev", volumes[0])
		p.DeletePod("user")
		kill()
		p.writtenAgain(before)
		p.Pod("user", kube.Mount(used, "/data"))
		p.Ready("user")
	})
}

func TestVolumeObjects_DeletedByForceAndWithoutTheirFinalizersAreWrittenAgain(t *testing.T) {
	p := keep(t, begin(t))
	p.killing(func(p *precious, kill func()) {
		volumes := p.volumes(idle, used, raw)
		before := p.uids(volumes)
		for _, name := range volumes {
			cluster.MustKubectl(p.t, "patch", "volumes.holdfast.dev", name, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
		}
		cluster.MustKubectl(p.t, append([]string{"delete", "--force", "--grace-period=0", "--wait=false", "volumes.holdfast.dev"}, volumes...)...)
		kill()
		p.writtenAgain(before)
	})
}

func TestStorageNodes_DeletedByHandAreWrittenAgainAndNothingIsLost(t *testing.T) {
	p := keep(t, begin(t))
	p.killing(func(p *precious, kill func()) {
		before := check.Got(objects.StorageNodes().Get(p.t.Context(), p.Home, metav1.GetOptions{}))(p.t)
		cluster.MustKubectl(p.t, "delete", "--all", "storagenodes.holdfast.dev")
		kill()
		kube.AwaitOne(p.Space, p.Holdfast("storagenodes"), p.Home, "to be written again", func(o *unstructured.Unstructured) (bool, error) {
			pools, _, _ := unstructured.NestedSlice(o.Object, "status", "pools")
			return o.GetUID() != before.UID && len(pools) > 0, nil
		})
	})
}

func TestSharedVolumes_WhoseObjectsAreDeletedByHandAreWrittenAgain(t *testing.T) {
	p := keep(t, begin(t)).keepShared()
	p.killing(func(p *precious, kill func()) {
		volumes := p.volumes(shared, plain)
		before := p.uids(volumes)
		cluster.MustKubectl(p.t, append([]string{"delete", "--wait=false", "volumes.holdfast.dev"}, volumes...)...)
		kill()
		p.writtenAgain(before)
	})
}

func TestNFSServer_WhoseClaimIsDeletedGetsItAgainWithItsData(t *testing.T) {
	p := keep(t, begin(t)).keepShared()
	p.killing(func(p *precious, kill func()) {
		claims := p.Client.CoreV1().PersistentVolumeClaims(p.Namespace)
		before := check.Got(claims.Get(p.t.Context(), "nfs-shared", metav1.GetOptions{}))(p.t)
		cluster.MustKubectl(p.t, "-n", p.Namespace, "delete", "--wait=false", "pvc", "nfs-shared")
		cluster.MustKubectl(p.t, "-n", p.Namespace, "delete", "--wait=false", "nfsserver", "shared") // it waits: volumes exist
		kill()
		cluster.MustKubectl(p.t, "-n", p.Namespace, "delete", "pod", "nfs-shared-0") // and the claim can go
		kube.AwaitOne(p.Space, claims, "nfs-shared", "to be made again", func(c *corev1.PersistentVolumeClaim) (bool, error) {
			return c.UID != before.UID && c.Spec.VolumeName == before.Spec.VolumeName && c.Status.Phase == corev1.ClaimBound, nil
		})
	})
}
