package volume_test

import (
	"testing"
	"testing/synctest"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/inmemory"
)

// placed makes a volume with a claim of the same name.
func (w *world) placed(name, node, fsType string) {
	w.Helper()
	check.Got(w.Volumes().Create(w.Context(), &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.VolumeSpec{
		Name: name, Node: node, ClaimRef: v1beta1.ReferenceTo("shop/" + name), Size: v1beta1.VolumeSize{Required: resource.NewQuantity(mib, resource.BinarySI)},
	}}, metav1.CreateOptions{}))(w)
	w.Answer(name, func(v *v1beta1.Volume) {
		inmemory.Made(v)
		v.Status.FSType = fsType
	})
}

// unschedulable makes a pod that uses a claim and fits on no node, unless it has one.
func (w *world) unschedulable(name, claim, node string) {
	w.Helper()
	w.pod(name, claim, core.PodPending)
	pods := w.Theirs.CoreV1().Pods("shop")
	p := check.Got(pods.Get(w.Context(), name, metav1.GetOptions{}))(w)
	p.Spec.NodeName = node
	p = check.Got(pods.Update(w.Context(), p, metav1.UpdateOptions{}))(w)
	p.Status.Conditions = []core.PodCondition{{Type: core.PodScheduled, Status: core.ConditionFalse, Reason: core.PodReasonUnschedulable}}
	check.Got(pods.UpdateStatus(w.Context(), p, metav1.UpdateOptions{}))(w)
}

func TestUnplaced_PodThatFitsNowhereGetsTheNodesThatLackTheClientOfItsVolume(t *testing.T) {
	sites := map[string]struct{ node, fsType, condition, says string }{
		"image":  {"block.ceph.holdfast.dev", "ext4", v1beta1.RBDVolumesCondition, "Ceph pool block"},
		"files":  {"files.ceph.holdfast.dev", v1beta1.CephFSType, v1beta1.CephFSVolumesCondition, "Ceph pool files"},
		"shared": {v1beta1.NodeOfServer("shop/server"), "ext4", v1beta1.SharedVolumesCondition, "NFS server shop/server"},
	}
	for name, site := range sites {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.Puppet("a", gib)
				w.Puppet("b", gib)
				w.Start()
				for of, site := range sites {
					w.placed(of, site.node, site.fsType)
					w.unschedulable("waits-for-"+of, of, "")
				}
				w.placed("own", "a", "ext4")
				w.unschedulable("full", "own", "")
				w.unschedulable("runs", name, "b")
				w.leads()
				lacks := func(node, module string) {
					n := check.Got(w.Nodes().Get(t.Context(), node, metav1.GetOptions{}))(t)
					meta.SetStatusCondition(&n.Status.Conditions, metav1.Condition{
						Type: site.condition, Status: metav1.ConditionFalse, Reason: "NoClient", Message: "the kernel has no module " + module,
					})
					check.Got(w.Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}))(t)
					w.Until("the controller knowing it", func() bool { return w.Backend.CanUse(node, v1beta1.ClientLabels[site.condition]) != nil })
				}
				expect := func(nodes string) {
					want := "Warning NoClient volume " + name + " is in " + site.says + ", and these nodes cannot use it: " + nodes + ", the kernel has no module first"
					if event := <-w.Events.Events; event != want {
						t.Errorf("the event is %q, want %q", event, want)
					}
				}
				synctest.Wait() // until the controller knows what the volumes are
				lacks("b", "first")
				expect("b. On b")
				lacks("a", "first")
				w.unschedulable("waits-too", name, "")
				lacks("b", "other") // the controller looks again
				expect("a, b. On a")
				if len(w.Events.Events) > 0 {
					t.Errorf("reported again: %q", <-w.Events.Events)
				}
			})
		})
	}
}
