package operator

import (
	"context"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

const noImage = "holdfast.test/there-is-none:1"

// use makes a claim and a pod that has written to it and still uses it.
func use(s *kube.Space, name string, options ...kube.PodOption) {
	s.Claim(name, "16Mi")
	s.Pod(name, append(options, kube.Mount(name, "/data"), kube.Script("touch /data/file; sleep infinity"))...)
	s.Ready(name)
}

func TestSpec_ThatCannotBeAppliedIsNamedAndWorkloadsRunUntilTheNextGoodOne(t *testing.T) {
	a := administer(t)
	before := a.versions()
	a.ask(func(spec *v1beta1.StorageClusterSpec) {
		spec.StorageClasses = []v1beta1.StorageClassSpec{{Name: "holdfast", Default: true}, {Name: "e2e-bad"}}
		spec.Distribution = "hurd"
		spec.Service.Port = 6000 // which is not half done
	})
	a.await("to name the field", func(c *v1beta1.StorageCluster) bool {
		return c.Status.Phase == v1beta1.ClusterDegraded && says(c, v1beta1.DegradedCondition, "InvalidSpec", "spec.distribution", "hurd", "spec.csi.kubeletDir") &&
			says(c, v1beta1.AvailableCondition, "Available")
	})
	a.AwaitClusterEvent(clusterName, "FailedCreation", "hurd")
	s := begin(t)
	use(s, "data")
	for name, version := range a.versions() {
		if before[name] != version {
			t.Errorf("%s was changed", name)
		}
	}
	a.change(func(spec *v1beta1.StorageClusterSpec) { spec.Distribution = "" })
	if _, made := a.classes()["e2e-bad"]; !made {
		t.Error("the class was not made when the rest was right")
	}
}

func TestClass_OfAMissingPoolIsRefusedWhenWritten(t *testing.T) {
	a := administer(t)
	patch := []byte(`{"spec":{"storageClasses":[{"name":"e2e-bad","pool":"nowhere"}]}}`)
	_, err := a.Holdfast("storageclusters").Patch(t.Context(), clusterName, types.MergePatchType, patch, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	if err == nil || !strings.Contains(err.Error(), "class e2e-bad names the pool nowhere") {
		t.Errorf("the API server says %v", err)
	}
}

// versions are those of the owned objects that others do not write to.
func (a *admin) versions() map[string]string {
	a.t.Helper()
	all := map[string]string{}
	for _, o := range a.owned() {
		if kind := o.GetKind(); kind != "DaemonSet" && kind != "Deployment" {
			all[o.String()] = o.GetResourceVersion()
		}
	}
	return all
}

func TestImage_MissingLeavesTheOldControllersServing(t *testing.T) {
	hostfs.Long(t)
	a := administer(t)
	_, other := twoNodes(t)
	before := a.pods("controller")
	a.ask(func(spec *v1beta1.StorageClusterSpec) { spec.Images.CSIResizer = noImage })
	kube.AwaitOne(a.Space, a.Client.AppsV1().Deployments(kube.System), "holdfast-controller", "to have a pod that does not start", func(d *appsv1.Deployment) (bool, error) {
		return d.Status.ObservedGeneration >= d.Generation && d.Status.UpdatedReplicas > 0 && d.Status.UnavailableReplicas > 0, nil
	})
	a.await("to wait for the new pods", func(c *v1beta1.StorageCluster) bool {
		return says(c, v1beta1.ProgressingCondition, "ImagePullBackOff", "Deployment holdfast-controller", "csi-resizer", noImage) && says(c, v1beta1.AvailableCondition, "Available")
	})
	s := begin(t)
	use(s, "data", kube.OnNode(other)) // not every machine grows a mounted ext4; the kernel of this node does
	s.Grow("data", "32Mi")
	after := a.pods("controller")
	for name, pod := range before {
		if now, stays := after[name]; !stays || now.UID != pod.UID || !isReady(&now) {
			t.Errorf("the old pod %s does not serve any more", name)
		}
	}
	a.change(func(spec *v1beta1.StorageClusterSpec) { spec.Images.CSIResizer = usual.Images.CSIResizer })
	use(s, "next")
}

func TestImage_MissingAffectsOneNodeNamedInTheCondition(t *testing.T) {
	hostfs.Long(t)
	a := administer(t)
	twoNodes(t)
	before := identities(a.pods("node"))
	a.ask(func(spec *v1beta1.StorageClusterSpec) { spec.Images.CSINodeDriverRegistrar = noImage })
	c := a.await("to name the node whose pod does not start", func(c *v1beta1.StorageCluster) bool {
		return says(c, v1beta1.DegradedCondition, "RolloutStuck", noImage) && c.Status.Phase == v1beta1.ClusterDegraded
	})
	now := a.pods("node")
	affected := ""
	for name, pod := range now {
		if _, old := before[name]; !old {
			affected += pod.Spec.NodeName
		}
	}
	if len(now) != len(before) || !says(c, v1beta1.DegradedCondition, "RolloutStuck", "node "+affected+" ") || affected == "" {
		t.Errorf("the pods of %q were replaced, and the condition says %s", affected, inWords(c.Status.Conditions))
	}
	var ready, unready []string
	for _, n := range c.Status.Nodes {
		if n.Ready {
			ready = append(ready, n.Name)
		} else {
			unready = append(unready, n.Name)
		}
	}
	if !slices.Equal(unready, []string{affected}) {
		t.Errorf("not ready is %v", unready)
	}
	s := begin(t)
	for _, node := range ready {
		s.Claim(node, "16Mi")
		s.Run(node, kube.Mount(node, "/data"), kube.OnNode(node), kube.Script("touch /data/file"))
	}
	a.change(func(spec *v1beta1.StorageClusterSpec) { spec.Images.CSINodeDriverRegistrar = "" })
	s.Claim(affected, "16Mi")
	s.Run(affected, kube.Mount(affected, "/data"), kube.OnNode(affected), kube.Script("touch /data/file"))
}

func TestStorageCluster_SecondIsRefusedAndChangesNothing(t *testing.T) {
	a := administer(t)
	before := a.versions()
	second := a.Holdfast("storageclusters")
	made, err := second.Create(t.Context(), &unstructured.Unstructured{Object: fields{
		"apiVersion": v1beta1.SchemeGroupVersion.String(), "kind": "StorageCluster", "metadata": fields{"name": "e2e-second"},
		"spec": fields{"service": fields{"name": "of-the-second"}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := second.Delete(context.WithoutCancel(t.Context()), made.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	kube.AwaitOne(a.Space, second, made.GetName(), "to be refused", func(found *unstructured.Unstructured) (bool, error) {
		c, err := typed[v1beta1.StorageCluster](found)
		return err == nil && c.Status.Phase == v1beta1.ClusterPending && says(c, v1beta1.ProgressingCondition, "Refused", "StorageCluster holdfast"), err
	})
	for name, version := range a.versions() {
		if before[name] != version {
			t.Errorf("%s was changed", name)
		}
	}
}
