package operator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/operator/bootstrap"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// remove is the one documented command.
func (a *admin) remove() {
	a.t.Helper()
	check.OK(a.t, a.Holdfast("storageclusters").Delete(a.t.Context(), clusterName, metav1.DeleteOptions{}))
}

// awaitRemoved waits until the StorageCluster and the namespace are gone, which are last.
func (a *admin) awaitRemoved() {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), 2*kube.Patience)
	defer cancel()
	if !a.Eventually(ctx, "Holdfast to be removed", a.isRemoved) {
		a.t.FailNow()
	}
}

func (a *admin) isRemoved(ctx context.Context) error {
	if c, err := read(ctx, a.Space); !apierrors.IsNotFound(err) {
		if err == nil {
			err = fmt.Errorf("the StorageCluster is there: %s", inWords(c.Status))
		}
		return err
	}
	namespace, err := a.Client.CoreV1().Namespaces().Get(ctx, kube.System, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		if err == nil {
			err = fmt.Errorf("the namespace is there: %s", inWords(namespace.Status))
		}
		return err
	}
	_, err = a.Dynamic.Resource(definitions).Get(ctx, "storageclusters.holdfast.dev", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		if err == nil {
			err = errors.New("the kind StorageCluster is there")
		}
		return err
	}
	return nil
}

func TestManifest_AloneCreatesAStorageClusterWithoutASpec(t *testing.T) {
	hostfs.Long(t)
	a := administer(t)
	s := begin(t)
	const pools = "/var/lib/holdfast" // which the machine may have for reasons of its own; a kubelet leaves it empty
	if err := os.Remove(pools); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Cleanup(func() {
			check.Report(t, os.RemoveAll(pools))
		})
	}
	a.remove()
	a.awaitRemoved()
	a.eventually("the manifest to be taken", func(ctx context.Context) error { return a.apply(ctx, a.released()) })
	a.eventually("the StorageCluster to be made", func(ctx context.Context) error {
		c, err := read(ctx, a.Space)
		if err == nil && !equality.Semantic.DeepEqual(c.Spec, v1beta1.StorageClusterSpec{}) {
			err = fmt.Errorf("its spec is %+v", c.Spec)
		}
		return err
	})
	kube.AwaitOne(a.Space, a.Client.AppsV1().DaemonSets(kube.System), "holdfast-node", "to be made", func(d *appsv1.DaemonSet) (bool, error) {
		return d.Status.DesiredNumberScheduled > 0, nil
	})
	a.change(asUsual) // which says where the kubelets of these nodes are
	s.Claim("data", "64Mi")
	s.Run("user", kube.Mount("data", "/data"), kube.Script("echo written >/data/file; sync /data/file"))
}

// released is the manifest as users get it: that of the tests comes with a StorageCluster, and asks for none.
func (a *admin) released() (file string) {
	a.t.Helper()
	installed, _ := a.manifests()
	objects := check.Got(readManifests(installed))(a.t)
	var manifest []byte
	for _, o := range objects {
		if o.GetKind() == "Namespace" {
			o.SetAnnotations(map[string]string{bootstrap.Annotation: clusterName})
		}
		encoded := check.Got(yaml.Marshal(o.Object))(a.t)
		manifest = append(append(manifest, "---\n"...), encoded...)
	}
	file = filepath.Join(a.t.TempDir(), "install.yaml")
	check.OK(a.t, os.WriteFile(file, manifest, 0o600))
	return file
}

func (a *admin) eventually(what string, ask func(context.Context) error) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), 2*kube.Patience)
	defer cancel()
	if !a.Eventually(ctx, what, ask) {
		a.t.FailNow()
	}
}

func TestOrphan_VolumeReturnsWithItsDataAfterTheNextInstallation(t *testing.T) {
	hostfs.Long(t)
	s := begin(t)
	a := administer(t) // is put back before the volumes of s are deleted
	_, other := twoNodes(t)
	on := map[string]string{"here": s.Home, "there": other}
	written := map[string]string{}
	for name, node := range on {
		s.Claim(name, "64Mi")
		written[name] = s.Run("write-"+name, kube.Mount(name, "/data"), kube.OnNode(node), kube.Script(
			"head -c 5000000 /dev/urandom >/data/file; sync /data/file; sha256sum /data/file"))
		s.DeletePod("write-" + name)
	}
	a.change(func(spec *v1beta1.StorageClusterSpec) { spec.DeletionPolicy = v1beta1.OrphanVolumes })
	volumes := a.count("volumes")
	a.remove()
	a.eventually("Holdfast to be removed", a.isRemoved)
	if left := a.count("volumes"); left != volumes {
		t.Errorf("%d Volumes are left of %d", left, volumes)
	}
	all := check.Got(a.Everything(t.Context(), ""))(t)
	for _, o := range all {
		name := o.String()
		if !strings.Contains(name, "holdfast") || o.Resource.Resource == "events" {
			continue // no other program has that in its names
		}
		kept := func(part string) bool { return strings.Contains(name, part) }
		if !slices.ContainsFunc([]string{"volumes.holdfast.dev", "snapshots.holdfast.dev", "nfsservers.holdfast.dev", "storagenodes.holdfast.dev", "apiservices.apiregistration.k8s.io v1beta1.holdfast.dev"}, kept) {
			t.Errorf("left behind: %s", name)
		}
	}

	a.eventually("the installation to be taken", a.install)
	a.awaitReconciled()
	for name, node := range on {
		read := s.Run("read-"+name, kube.Mount(name, "/data"), kube.OnNode(node), kube.Script("sha256sum /data/file"))
		if read != written[name] {
			t.Errorf("on %s: written %q, read %q", node, written[name], read)
		}
		s.DeletePod("read-" + name)
		s.Pod("user-"+name, kube.Mount(name, "/data"), kube.OnNode(node))
		s.Ready("user-" + name)
	}
	s.Grow("there", "96Mi") // it is served as ever
}

// count is how many objects there are of a kind of Holdfast.
func (a *admin) count(resource string) int {
	a.t.Helper()
	list := check.Got(a.Holdfast(resource).List(a.t.Context(), metav1.ListOptions{}))(a.t)
	return len(list.Items)
}
