package operator

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/test/e2e/kube"
	"github.com/holdfast-storage/holdfast/test/hostfs"
)

// askedNobody is the last release that made NFS servers and inline volumes for everybody, and no policy for any account.
const askedNobody = "fd3fefefdfa753273a8b9c6cf5fb527e02d0441c"

// A user installs that release, uses it, and then applies the manifest of this one.
func TestAManifestAppliedOverTheReleaseThatAskedNobodyKeepsWhatIsUsedAndTellsWhatToAllow(t *testing.T) {
	hostfs.Long(t)
	a := administer(t)
	s := begin(t)
	_, other := twoNodes(t)
	holdfast, own := a.earlier()
	a.remove()
	a.awaitRemoved()
	a.eventually("the manifest of the earlier release to be taken", func(ctx context.Context) error { return a.apply(ctx, holdfast, own) })
	a.eventually("the earlier release to run", func(ctx context.Context) error {
		c, err := read(ctx, a.Space)
		if err == nil && c.Status.Phase != v1.ClusterRunning {
			err = fmt.Errorf("it is %s", inWords(c.Status))
		}
		return err
	})

	s.Serve("files", s.Home, map[string]any{
		"storage": map[string]any{"storageClassName": "holdfast", "size": "1Gi"}, "reclaimPolicy": "Delete", "gracePeriod": "60s",
	})
	class := s.Class("files", "csi.holdfast.dev", "shared", "true", "nfsServer", s.Namespace+"/files")
	s.Claim("files", "32Mi", kube.AccessMode(core.ReadWriteMany), kube.OfClass(class))
	s.Claim("local", "64Mi")
	write := kube.Script("echo kept >/data/it; sync; sleep infinity")
	s.Pod("sharer", kube.Mount("files", "/data"), kube.OnNode(other), write)
	s.Pod("inliner", kube.Inline("/data", map[string]string{"size": "16Mi"}), write)
	s.Pod("writer", kube.Mount("local", "/data"), write)
	pods := []*core.Pod{s.Ready("sharer"), s.Ready("inliner"), s.Ready("writer")}

	installed, _ := a.manifests()
	a.eventually("the manifest of this release to be taken", func(ctx context.Context) error { return a.apply(ctx, installed) })
	a.change(func(spec *v1.StorageClusterSpec) {
		*spec = *usual.DeepCopy()
		spec.CSI.Ephemeral = nil // which the earlier release did not have
	})
	a.tells(s.Namespace)

	for _, before := range pods {
		if it := s.Exec(before.Name, "cat", "/data/it"); it != "kept\n" {
			t.Errorf("pod %s reads %q", before.Name, it)
		}
		now, err := s.Client.CoreV1().Pods(s.Namespace).Get(t.Context(), before.Name, metav1.GetOptions{})
		if err != nil || now.UID != before.UID || now.Status.ContainerStatuses[0].RestartCount > 0 {
			t.Errorf("pod %s was started again, %v", before.Name, err)
		}
	}
	if found := s.Run("again", kube.Mount("files", "/data"), kube.OnNode(other), kube.Script("cat /data/it")); found != "kept\n" {
		t.Errorf("mounted anew the shared volume holds %q", found)
	}
	s.Pod("another", kube.Inline("/data", map[string]string{"size": "16Mi"}))
	s.AwaitEvent("another", "FailedMount", "spec.csi.ephemeral")
	s.DeletePod("another")
}

// earlier is the manifest of the earlier release, for this cluster, and its StorageCluster, the images brought to all
// nodes.
func (a *admin) earlier() (holdfast, own string) {
	a.t.Helper()
	scratch := a.t.TempDir()
	sources := filepath.Join(scratch, "earlier")
	if err := kube.Sources(a.t.Context(), "../../..", askedNobody, sources); err != nil {
		hostfs.Skip(a.t, "history", fmt.Sprint("needs the repository with its history: ", err))
	}
	image, err := cluster.LoadRelease(a.t.Context(), sources, askedNobody[:12])
	if err != nil {
		a.t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(sources, "deploy/install.yaml"))
	if err != nil {
		a.t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(strings.ReplaceAll(string(text), "image: holdfast/holdfast:dev", "image: "+image)) {
		if !strings.Contains(line, "holdfast.dev/first-cluster:") { // the StorageCluster comes from here
			lines = append(lines, line)
		}
	}
	holdfast, own = filepath.Join(scratch, "install.yaml"), filepath.Join(scratch, "storagecluster.yaml")
	spec := usual.DeepCopy()
	spec.Images.Holdfast, spec.CSI.Ephemeral = v1.Image(image), nil
	c, err := yaml.Marshal(map[string]any{
		"apiVersion": "holdfast.dev/v1", "kind": "StorageCluster", "metadata": map[string]any{"name": clusterName}, "spec": spec,
	})
	if err != nil {
		a.t.Fatal(err)
	}
	for file, text := range map[string]string{holdfast: strings.Join(lines, ""), own: string(c)} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	return holdfast, own
}

// tells waits until the server and the StorageCluster say what the administrator has to allow, and that the server serves.
func (a *admin) tells(namespace string) {
	a.t.Helper()
	kube.AwaitOne(a.Space, a.Holdfast("nfsservers").Namespace(namespace), "files", "to serve and to say how its namespace is allowed", func(o *unstructured.Unstructured) (bool, error) {
		n, err := typed[v1.NFSServer](o)
		if err != nil {
			return false, err
		}
		degraded := meta.FindStatusCondition(n.Status.Conditions, v1.DegradedCondition)
		return meta.IsStatusConditionTrue(n.Status.Conditions, v1.AvailableCondition) && degraded != nil &&
			strings.Contains(degraded.Message, "kubectl patch") && strings.Contains(degraded.Message, namespace), nil
	})
	a.await("to say how inline volumes are allowed", func(c *v1.StorageCluster) bool {
		told := meta.FindStatusCondition(c.Status.Conditions, v1.EphemeralNotAllowedCondition)
		return told != nil && told.Status == metav1.ConditionTrue && strings.Contains(told.Message, "spec.csi.ephemeral")
	})
}
