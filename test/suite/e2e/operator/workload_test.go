package operator

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// binder makes claims one after the other, each until it is bound, and counts them.
type binder struct {
	stop  context.CancelFunc
	ended chan struct{}
	bound int
}

// keepBinding binds claims of a class until it is stopped.
func keepBinding(t *testing.T, s *kube.Space, class string) *binder {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	b := &binder{stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(b.ended)
		for i := 0; ctx.Err() == nil && !t.Failed(); i++ {
			name := fmt.Sprint("claim-", i)
			s.Claim(name, "16Mi", kube.OfClass(class))
			s.Volume(name)
			s.DeleteClaim(name)
			b.bound++
		}
	}()
	t.Cleanup(func() { b.end() })
	return b
}

func (b *binder) end() int {
	b.stop()
	<-b.ended
	return b.bound
}

// immediate makes a class that binds claims before there is a pod.
func (a *admin) immediate() string {
	a.t.Helper()
	const name = "e2e-immediate"
	a.change(func(spec *v1beta1.StorageClusterSpec) {
		spec.StorageClasses = []v1beta1.StorageClassSpec{{Name: "holdfast", Default: true}, {Name: name, VolumeBindingMode: "Immediate"}}
	})
	return name
}

func TestController_ClaimsAreBoundWhileItBecomesAStatefulSetAndADeploymentAgain(t *testing.T) {
	hostfs.Long(t)
	a := administer(t)
	class := a.immediate()
	s := begin(t)
	claims := keepBinding(t, s, class)
	for _, strategy := range []v1beta1.ControllerKind{v1beta1.AsStatefulSet, v1beta1.AsDeployment} {
		a.change(func(spec *v1beta1.StorageClusterSpec) { spec.Controller.Kind = strategy })
		sets, deployments := a.workloads()
		if isSet := strategy == v1beta1.AsStatefulSet; sets != isSet || deployments == isSet {
			t.Errorf("as %s: StatefulSet %t, Deployment %t", strategy, sets, deployments)
		}
		next := "of-a-" + strings.ToLower(string(strategy))
		s.Claim(next, "16Mi", kube.OfClass(class))
		s.Volume(next)
	}
	if bound := claims.end(); bound < 5 {
		t.Errorf("only %d claims were bound", bound)
	} else {
		t.Logf("%d claims were bound in that time", bound)
	}
}

// ofController leaves out the controller of snapshots, which is a Deployment always.
const ofController = managed + ",app.kubernetes.io/component=controller"

// workloads says which workload the controller has.
func (a *admin) workloads() (statefulSet, deployment bool) {
	a.t.Helper()
	sets := check.Got(a.Client.AppsV1().StatefulSets(kube.System).List(a.t.Context(), metav1.ListOptions{LabelSelector: ofController}))(a.t)
	deployments := check.Got(a.Client.AppsV1().Deployments(kube.System).List(a.t.Context(), metav1.ListOptions{LabelSelector: ofController}))(a.t)
	return len(sets.Items) > 0, len(deployments.Items) > 0
}

const managed = "app.kubernetes.io/managed-by=holdfast-operator"

// owned returns all that the operator keeps: what has its label and belongs to the StorageCluster itself. Kubernetes
// copies labels to what it makes of them.
func (a *admin) owned() []kube.Listed {
	a.t.Helper()
	all := check.Got(a.Everything(a.t.Context(), managed))(a.t)
	return slices.DeleteFunc(all, func(o kube.Listed) bool {
		owner := metav1.GetControllerOf(o)
		return owner == nil || owner.Kind != "StorageCluster"
	})
}

func TestCSI_DisabledRemovesTheNodePluginAndEnabledServesVolumesAgain(t *testing.T) {
	hostfs.Long(t)
	s := begin(t)
	a := administer(t)
	s.Claim("data", "64Mi")
	s.Run("writer", kube.Mount("data", "/data"), kube.Script("echo written >/data/file; sync /data/file"))
	s.DeletePod("writer")

	a.allowHiding("default")
	a.ask(func(spec *v1beta1.StorageClusterSpec) { spec.CSI.Enabled = new(bool) })
	kube.Await(a.Space, a.Client.CoreV1().Pods(kube.System), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=node"}, "the end of the node pods",
		func(all []*corev1.Pod) (bool, error) { return len(all) == 0, nil })
	a.eventually("nothing of the driver being there", func(context.Context) error {
		for _, o := range a.owned() {
			switch o.GetKind() {
			case "DaemonSet":
				if o.GetName() != "holdfast-loop-sets" {
					return fmt.Errorf("without CSI there is %s", o)
				}
			case "CSIDriver", "StorageClass", "VolumeSnapshotClass", "VolumeGroupSnapshotClass":
				return fmt.Errorf("without CSI there is %s", o)
			}
		}
		for name, pod := range a.pods("controller") {
			if len(pod.Spec.Containers) != 1 {
				return fmt.Errorf("pod %s has %d containers, want only that of Holdfast", name, len(pod.Spec.Containers))
			}
		}
		return nil
	})

	a.change(func(spec *v1beta1.StorageClusterSpec) { spec.CSI.Enabled = new(true) })
	if read := s.Run("reader", kube.Mount("data", "/data"), kube.Script("cat /data/file")); read != "written\n" {
		t.Errorf("read %q", read)
	}
	s.Claim("next", "64Mi")
	s.Run("next", kube.Mount("next", "/data"), kube.Script("touch /data/file"))
}

func TestCSI_DisabledServersCreatePlainVolumesAndServeThemOnceEnabled(t *testing.T) {
	hostfs.Long(t)
	s := begin(t)
	_, client := twoNodes(t)
	a := administer(t)
	directory := filepath.Join("/var/lib", s.Namespace)
	s.BeforeEnd(func(context.Context) error { return os.RemoveAll(directory) }) // after the server

	a.change(func(spec *v1beta1.StorageClusterSpec) { spec.CSI.Enabled = new(bool) })
	s.Serve("shared", s.Home, map[string]any{"storage": map[string]any{"hostPath": directory}})
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: s.Namespace}, Provisioner: "nfs.holdfast.dev", Parameters: map[string]string{"nfsServer": s.Namespace + "/shared"},
	}
	classes := s.Client.StorageV1().StorageClasses()
	check.Got(classes.Create(t.Context(), class, metav1.CreateOptions{}))(t)
	s.BeforeEnd(func(ctx context.Context) error { return classes.Delete(ctx, class.Name, metav1.DeleteOptions{}) })
	s.Claim("files", "32Mi", kube.OfClass(class.Name), kube.AccessMode(corev1.ReadWriteMany))
	s.Pod("writer", kube.Mount("files", "/data"), kube.OnNode(client), kube.Script("while sleep 0.5; do echo line >>/data/log; sync /data/log; echo written; done"))
	s.Ready("writer")

	a.change(func(spec *v1beta1.StorageClusterSpec) { spec.CSI.Enabled = new(true) })
	had := strings.Count(s.Log("writer"), "\n")
	s.FirstLines("writer", had+5)
	s.Claim("more", "32Mi", kube.OfClass(class.Name), kube.AccessMode(corev1.ReadWriteMany))
	s.Run("more", kube.Mount("more", "/data"), kube.OnNode(client), kube.Script("touch /data/file"))
	kube.AwaitNone(a.Space, a.Client.CoreV1().Pods(kube.System), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=loop-sets"}, "the pods that only allocate loop devices")
}
