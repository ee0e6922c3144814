package ceph

import (
	"context"
	"errors"
	"slices"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// With the last pool in a Ceph cluster external-attacher goes, which holds a finalizer of each volume.
func TestAttach_VolumesOfNodesInUseSurviveThatTheLastPoolInCephGoesAndOneComes(t *testing.T) {
	hostfs.Long(t)
	s := begin(t)
	was, _, err := storageCluster(t.Context())
	check.OK(t, err)
	use(s, "with")
	use(s, "gone")
	kube.Await(s, s.Client.StorageV1().VolumeAttachments(), metav1.ListOptions{}, "the volume to be attached", func(all []*storagev1.VolumeAttachment) (bool, error) {
		return slices.ContainsFunc(all, func(a *storagev1.VolumeAttachment) bool {
			name := a.Spec.Source.PersistentVolumeName
			return name != nil && *name == s.Volume("with").Name && a.Status.Attached
		}), nil
	})
	again := func(ctx context.Context) error {
		return errors.Join(change(ctx, func(spec *v1beta1.StorageClusterSpec) { *spec = *was.Spec.DeepCopy() }), awaitReady(ctx))
	}
	t.Cleanup(func() { check.Report(t, again(context.WithoutCancel(t.Context()))) })
	check.OK(t, leave(t.Context(), asInstalled))
	use(s, "without")
	end(t, s, "gone") // without an attacher
	check.OK(t, again(t.Context()))
	for _, name := range []string{"with", "without"} {
		if restarts := s.Ready(name).Status.ContainerStatuses[0].RestartCount; restarts > 0 {
			t.Errorf("pod %s failed %d times", name, restarts)
		}
		end(t, s, name)
	}
}

// end ends the pod of a volume and deletes the volume.
func end(t *testing.T, s *kube.Space, name string) {
	t.Helper()
	volume := s.Volume(name).Name
	s.DeletePod(name)
	s.DeleteClaim(name)
	kube.AwaitNone(s, s.Client.CoreV1().PersistentVolumes(), kube.Named(volume), "volume "+volume)
}

// use has a pod use a volume of its node.
func use(s *kube.Space, name string) {
	s.Claim(name, "64Mi", kube.OfClass(localClass))
	s.Pod(name, kube.Mount(name, "/data"))
	s.Ready(name)
}
