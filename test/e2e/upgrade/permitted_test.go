package upgrade

import (
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/test/e2e/kube"
	"github.com/holdfast-storage/holdfast/test/hostfs"
)

// TestAnUpgradeKeepsServersAndInlineVolumesThatNobodyHasAllowed has both as they were in a release that asked nobody: they
// go on while Holdfast is replaced, and the administrator is told what to allow.
func TestAnUpgradeKeepsServersAndInlineVolumesThatNobodyHasAllowed(t *testing.T) {
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
	s.isTold()

	s.completes(s.upgrade("back", v1.StorageUpgradeSpec{Image: earlier}).Name, rollingSteps, s.image, earlier)
	s.completes(s.upgrade("forth", v1.StorageUpgradeSpec{Image: s.image}).Name, rollingSteps, earlier, s.image)
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
		t.Errorf("mounted anew the volume holds %q", found)
	}
	s.isTold()
	s.Pod("another", kube.Inline("/data", map[string]string{"size": "16Mi"}))
	s.AwaitEvent("another", "FailedMount", "spec.csi.ephemeral")
}

// allowInline writes what the StorageCluster says of inline volumes. The end of the test writes all of its spec.
func (s *site) allowInline(e *v1.EphemeralSpec) {
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

// isTold waits until the server and the StorageCluster say what the administrator has to allow, and that the server serves.
func (s *site) isTold() {
	s.t.Helper()
	kube.AwaitOne(s.Space, objects.NFSServers(s.Namespace), "files", "to serve and to say how its namespace is allowed", func(n *v1.NFSServer) (bool, error) {
		degraded := meta.FindStatusCondition(n.Status.Conditions, v1.DegradedCondition)
		return meta.IsStatusConditionTrue(n.Status.Conditions, v1.AvailableCondition) && degraded != nil && strings.Contains(degraded.Message, "kubectl patch") &&
			strings.Contains(degraded.Message, s.Namespace), nil
	})
	kube.AwaitOne(s.Space, objects.StorageClusters(), clusterName, "to say how inline volumes are allowed", func(c *v1.StorageCluster) (bool, error) {
		told := meta.FindStatusCondition(c.Status.Conditions, v1.EphemeralNotAllowedCondition)
		return told != nil && told.Status == metav1.ConditionTrue && strings.Contains(told.Message, "spec.csi.ephemeral"), nil
	})
}
