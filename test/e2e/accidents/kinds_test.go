package accidents

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/test/e2e/kube"
)

// manifest is what the cluster was installed with.
func manifest() string { return filepath.Join(filepath.Dir(kubeconfig), "install.yaml") }

// installed applies what the cluster was installed with, and waits until it runs.
func (p *precious) installed() {
	p.t.Helper()
	p.Eventually(p.t.Context(), "the manifest to be applied", func(context.Context) error {
		_, err := kubectl(p.t, "apply", "--server-side", "--force-conflicts", "-f", manifest())
		return err
	})
}

func TestKinds_AreNotDeletedWhileThereAreVolumes(t *testing.T) {
	p := keep(t, begin(t))
	for _, what := range [][]string{
		{"crd", "volumes.holdfast.dev"},
		{"crd", "storageclusters.holdfast.dev"},
		{"crd", "snapshots.holdfast.dev"},
		{"crd", "storagenodes.holdfast.dev"},
		{"namespace", kube.System},
	} {
		out, err := kubectl(t, append([]string{"delete", "--wait=false"}, what...)...)
		if err == nil || !strings.Contains(out, "volumes") || !strings.Contains(out, "docs/uninstall.md") {
			t.Errorf("%v: %v: %s", what, err, out)
		}
	}
	p.intact(t.Name())
}

func TestStorageCluster_DeletedByForceWaitsForTheLastVolume(t *testing.T) {
	p := keep(t, begin(t))
	for _, how := range [][]string{{"--cascade=orphan"}, {"--force", "--grace-period=0"}, {"--cascade=foreground"}} {
		mustKubectl(t, append([]string{"delete", "storagecluster", clusterName, "--dry-run=server"}, how...)...)
	}
	p.intact(t.Name())
}

func TestManifest_DeletedAndAppliedAgainLosesNothing(t *testing.T) {
	p := keep(t, begin(t)).keepShared()
	out, err := kubectl(t, "delete", "--wait=false", "-f", manifest())
	if err == nil || !strings.Contains(out, "docs/uninstall.md") {
		t.Errorf("it was not refused: %v: %s", err, out)
	}
	p.installed()
	if _, err := objects.StorageClusters().Get(t.Context(), clusterName, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	p.cluster(v1.ClusterRunning, v1.DegradedCondition)
	p.intact(t.Name())
}
