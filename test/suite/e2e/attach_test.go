package e2e

import (
	"strings"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

func TestAttach_VolumeAttachmentShowsTheNodeAndASecondNodeIsRefused(t *testing.T) {
	hostfs.Long(t)
	reinstall(t, settings{attach: true})
	s := begin(t)
	other := secondNode(t)
	s.Claim("data", "64Mi")
	s.Pod("user", kube.Mount("data", "/data"), kube.Script(kube.Appender))
	s.Ready("user")
	volume := s.Volume("data").Name
	attachments := s.Client.StorageV1().VolumeAttachments()
	of := func(all []*storagev1.VolumeAttachment) (found []*storagev1.VolumeAttachment) {
		for _, a := range all {
			if name := a.Spec.Source.PersistentVolumeName; name != nil && *name == volume {
				found = append(found, a)
			}
		}
		return found
	}
	kube.Await(s, attachments, metav1.ListOptions{}, "the attachment", func(all []*storagev1.VolumeAttachment) (bool, error) {
		mine := of(all)
		return len(mine) == 1 && mine[0].Spec.NodeName == s.Home && mine[0].Status.Attached, nil
	})

	second, err := attachments.Create(t.Context(), &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: s.Namespace},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: "csi.holdfast.dev", NodeName: other, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	refused := kube.AwaitOne(s, attachments, second.Name, "to be refused", func(a *storagev1.VolumeAttachment) (bool, error) {
		return a.Status.Attached || a.Status.AttachError != nil, nil
	})
	if e := refused.Status.AttachError; e == nil || !strings.Contains(e.Message, "is on the disk of node "+s.Home) || !strings.Contains(e.Message, other) {
		t.Errorf("on %s: %+v", other, refused.Status)
	}
	if err := attachments.Delete(t.Context(), second.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if restarts := s.Ready("user").Status.ContainerStatuses[0].RestartCount; restarts > 0 {
		t.Errorf("the first pod failed %d times", restarts)
	}
	s.DeletePod("user")
	kube.Await(s, attachments, metav1.ListOptions{}, "the end of the attachments", func(all []*storagev1.VolumeAttachment) (bool, error) {
		return len(of(all)) == 0, nil
	})
}

func TestAttach_NodeTakesNoMoreVolumesThanItsLimit(t *testing.T) {
	hostfs.Long(t)
	reinstall(t, settings{maxVolumes: 2})
	s := begin(t)
	secondNode(t)
	for _, name := range []string{"a", "b"} {
		s.Claim(name, "64Mi")
		s.Pod(name, kube.Mount(name, "/data"))
		s.Ready(name)
	}
	s.Claim("c", "64Mi")
	s.Pod("c", kube.Mount("c", "/data"))
	s.AwaitEvent("c", "FailedScheduling", "max volume count")
	s.Claim("d", "64Mi")
	s.Pod("d", kube.Mount("d", "/data"), preferring(s.Home))
	if at := s.Ready("d").Spec.NodeName; at == s.Home {
		t.Error("a pod that may go elsewhere runs where no more volumes may be")
	}
	s.DeletePod("a")
	s.Ready("c")
}
