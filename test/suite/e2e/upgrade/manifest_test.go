package upgrade

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/deploy"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// nextVersion is what this release calls itself where it is to have a version: builds for development have none.
const nextVersion = "e2e-next"

// installedManifest is the file that the cluster was installed from.
func installedManifest() string {
	return filepath.Join(filepath.Dir(cluster.Kubeconfig()), "install.yaml")
}

// manifestOf writes the manifest of a version, as make install-manifest does, with the image of it that is on the nodes.
func (s *site) manifestOf(version string, image v1beta1.Image) (path string) {
	s.t.Helper()
	text := string(check.Got(os.ReadFile(installedManifest()))(s.t))
	for from, to := range map[string]string{
		"image: " + string(s.image):                               "image: " + string(image),
		"app.kubernetes.io/version: " + deploy.DevelopmentTag:     "app.kubernetes.io/version: " + version,
		v1beta1.ManifestAnnotation + ": " + deploy.DevelopmentTag: v1beta1.ManifestAnnotation + ": " + version,
	} {
		if !strings.Contains(text, from+"\n") {
			s.t.Fatalf("%s does not have %q", installedManifest(), from)
		}
		text = strings.ReplaceAll(text, from+"\n", to+"\n")
	}
	path = filepath.Join(s.t.TempDir(), "install.yaml")
	check.OK(s.t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// apply applies a manifest as the documents say.
func apply(t *testing.T, manifest string) {
	t.Helper()
	cluster.MustKubectl(t, "apply", "--server-side", "--force-conflicts", "-f", manifest)
}

// awaitUnpinned waits until all of Holdfast runs an image that the StorageCluster does not name.
func (s *site) awaitUnpinned(image v1beta1.Image) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*kube.Patience)
	defer cancel()
	if !s.Eventually(ctx, "all of Holdfast to run "+string(image)+" without a name in the StorageCluster", func(ctx context.Context) error {
		return s.runsAsked(ctx, "", image)
	}) {
		s.t.FailNow()
	}
}

// running identifies all containers of Holdfast that run, by pods, whose names follow from their templates.
func (s *site) running() map[string]string {
	s.t.Helper()
	all := map[string]string{}
	pods := check.Got(s.Client.CoreV1().Pods(kube.System).List(s.t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=holdfast"}))(s.t)
	for _, p := range pods.Items {
		for _, c := range p.Status.ContainerStatuses {
			all[p.Name+"/"+c.Name] = c.ContainerID
		}
	}
	return all
}

// TestUpgrade_ImageIsNamedUntilTheManifestOfItsReleaseIsApplied goes on by manifests after a StorageUpgrade.
func TestUpgrade_ImageIsNamedUntilTheManifestOfItsReleaseIsApplied(t *testing.T) {
	hostfs.Long(t)
	t.Cleanup(func() { // after the cluster is as it was
		if t.Failed() && cluster != nil {
			apply(t, installedManifest())
		}
	})
	s := begin(t)
	loaded, err := cluster.LoadRelease(t.Context(), root, nextVersion)
	check.OK(t, err)
	next := v1beta1.Image(loaded)
	s.completes(s.upgrade("names", v1beta1.StorageUpgradeSpec{Image: next}).Name, rollingSteps, s.image, next)
	s.awaitImage(next)

	counters, before := s.count(), s.running()
	apply(t, s.manifestOf(nextVersion, next))
	s.awaitUnpinned(next)
	if by := s.storageCluster().Annotations[v1beta1.UpgradedAnnotation]; by != "" {
		t.Errorf("the StorageCluster still has the image %s of the upgrade", by)
	}
	if after := s.running(); !maps.Equal(after, before) {
		t.Errorf("before the manifest there were\n%v\nand after it\n%v", before, after)
	}

	apply(t, installedManifest()) // which is another release to the one that runs
	s.awaitUnpinned(s.image)
	expectUndisturbed(t, counters)
}
