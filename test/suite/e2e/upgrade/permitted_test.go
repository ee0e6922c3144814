package upgrade

import (
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// TestUpgrade_KeepsServersAndInlineVolumesThatAreNotAllowed has both as they were in a release without that check: they
// go on while Holdfast is replaced, and the status names what the administrator has to allow.
func TestUpgrade_KeepsServersAndInlineVolumesThatAreNotAllowed(t *testing.T) {
	hostfs.Long(t)
	s := begin(t)
	earlier := s.earlier()
	s.Serve("files", s.Home, map[string]any{
		"storage": map[string]any{"storageClassName": "holdfast", "size": "1Gi"}, "reclaimPolicy": "Delete", "gracePeriod": "60s",
	})
	class := s.Class("files", "csi.holdfast.dev", "shared", "true", "nfsServer", s.Namespace+"/files")
	s.Claim("files", "32Mi", kube.AccessMode(core.ReadWriteMany), kube.OfClass(class))
	write := kube.Script("echo kept >/data/it; sync; sleep infinity")
	s.Pod("sharer", kube.Mount("files", "/data"), kube.OnNode(s.nodes[1]), write)
	s.Pod("inliner", kube.Inline("/data", map[string]string{"size": "16Mi"}), write)
	pods := []*core.Pod{s.Ready("sharer"), s.Ready("inliner")}
	s.DisallowServers()
	s.allowInline(nil)
	s.awaitRemedies()

	s.completes(s.upgrade("back", v1beta1.StorageUpgradeSpec{Image: earlier}).Name, rollingSteps, s.image, earlier)
	s.completes(s.upgrade("forth", v1beta1.StorageUpgradeSpec{Image: s.image}).Name, rollingSteps, earlier, s.image)
	s.awaitImage(s.image)

	for _, before := range pods {
		if it := s.Exec(before.Name, "cat", "/data/it"); it != "kept\n" {
			t.Errorf("pod %s reads %q", before.Name, it)
		}
		now, err := s.Client.CoreV1().Pods(s.Namespace).Get(t.Context(), before.Name, metav1.GetOptions{})
		if err != nil || now.UID != before.UID || now.Status.ContainerStatuses[0].RestartCount > 0 {
			t.Errorf("pod %s was started again, %v", before.Name, err)
		}
	}
	if found := s.Run("again", kube.Mount("files", "/data"), kube.OnNode(s.nodes[1]), kube.Script("cat /data/it")); found != "kept\n" {
		t.Errorf("mounted again the volume holds %q", found)
	}
	s.awaitRemedies()
	s.Pod("another", kube.Inline("/data", map[string]string{"size": "16Mi"}))
	s.AwaitEvent("another", "FailedMount", "spec.csi.ephemeral")
}

// allowInline writes what the StorageCluster says of inline volumes. The end of the test writes all of its spec.
func (s *site) allowInline(e *v1beta1.EphemeralSpec) {
	s.t.Helper()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		c := s.storageCluster()
		c.Spec.CSI.Ephemeral = e
		_, err := objects.StorageClusters().Update(s.t.Context(), c, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// awaitRemedies waits until the server and the StorageCluster say what the administrator has to allow, and that the server serves.
func (s *site) awaitRemedies() {
	s.t.Helper()
	kube.AwaitOne(s.Space, objects.NFSServers(s.Namespace), "files", "to serve and to say how its namespace is allowed", func(n *v1beta1.NFSServer) (bool, error) {
		degraded := meta.FindStatusCondition(n.Status.Conditions, v1beta1.DegradedCondition)
		return meta.IsStatusConditionTrue(n.Status.Conditions, v1beta1.AvailableCondition) && degraded != nil && strings.Contains(degraded.Message, "kubectl patch") &&
			strings.Contains(degraded.Message, s.Namespace), nil
	})
	kube.AwaitOne(s.Space, objects.StorageClusters(), clusterName, "to say how inline volumes are allowed", func(c *v1beta1.StorageCluster) (bool, error) {
		condition := meta.FindStatusCondition(c.Status.Conditions, v1beta1.EphemeralNotAllowedCondition)
		return condition != nil && condition.Status == metav1.ConditionTrue && strings.Contains(condition.Message, "spec.csi.ephemeral"), nil
	})
}
