package cluster_test

import (
	"slices"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/cluster"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/inmemory"
)

// hosts is a node that has a client in a Ceph cluster, whose kubelet reports a volume there as in use, and a volume of its own.
func (w *world) hosts(volume string) {
	w.Helper()
	w.Change = func(c *cluster.Config) { c.Driver = v1beta1.DriverName }
	w.Start()
	w.Puppet(node, gib)
	w.KubernetesNode(node)
	for name, at := range map[string]string{volume: v1beta1.NodeOfCephPool("block"), "local": node} {
		v := &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.VolumeSpec{Name: name, Node: at}}
		check.Got(w.Volumes().Create(w.Context(), v, metav1.CreateOptions{}))(w)
	}
	w.status(func(n *v1beta1.StorageNode) {
		n.Status.CephClients = []v1beta1.CephClient{{FSID: "f", ID: "client.1", Address: "10.0.0.5:0/1"}}
	})
	w.inUse(volume, "local")
}

func (w *world) status(change func(*v1beta1.StorageNode)) {
	w.Helper()
	w.statusOf(node, change)
}

func (w *world) statusOf(name string, change func(*v1beta1.StorageNode)) {
	w.Helper()
	n, err := w.Nodes().Get(w.Context(), name, metav1.GetOptions{})
	if err == nil {
		change(n)
		_, err = w.Nodes().UpdateStatus(w.Context(), n, metav1.UpdateOptions{})
	}
	check.OK(w, err)
}

func (w *world) inUse(volumes ...string) {
	w.Helper()
	n, err := w.Theirs.CoreV1().Nodes().Get(w.Context(), node, metav1.GetOptions{})
	if err == nil {
		n.Status.VolumesInUse = nil
		for _, v := range volumes {
			n.Status.VolumesInUse = append(n.Status.VolumesInUse, core.UniqueVolumeName("kubernetes.io/csi/csi.holdfast.dev^"+v))
		}
		_, err = w.Theirs.CoreV1().Nodes().UpdateStatus(w.Context(), n, metav1.UpdateOptions{})
	}
	check.OK(w, err)
}

func TestAttach_OfAVolumeThatWasWrittenAgainWaitsForEachNodeThatHasIt(t *testing.T) {
	inBubble(t, func(w *world) {
		w.hosts("v")
		w.Puppet("off", gib) // is shut out, and its name comes first
		for name, change := range map[string]func(*v1beta1.StorageNode){
			node: func(n *v1beta1.StorageNode) { n.Status.CephVolumes = []string{"v"} },
			"off": func(n *v1beta1.StorageNode) {
				n.Status.CephVolumes = []string{"v"}
				meta.SetStatusCondition(&n.Status.Conditions, metav1.Condition{Type: v1beta1.FencedCondition, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonFenced})
			},
		} {
			w.statusOf(name, change)
			w.Until("the record in the cache", func() bool {
				n, err := w.Backend.Watches.Holdfast.Holdfast().V1beta1().StorageNodes().Lister().Get(name)
				return err == nil && len(n.Status.CephVolumes) > 0
			})
		}
		for range 10 { // in whatever order the cache has them
			inmemory.Expect(w, w.Backend.Attach(w.Context(), "v", "other"), backend.ErrUnavailable, "not detached from node "+node)
		}
		w.status(func(n *v1beta1.StorageNode) { n.Status.CephVolumes = nil })
		w.inUse()
		check.Report(w, w.Backend.Attach(w.Context(), "v", "other")) // once that node has it no more
	})
}

func TestDelete_OfAVolumeThatTheKernelOfANodeHasIsRefused(t *testing.T) {
	inBubble(t, func(w *world) {
		w.hosts("v")
		record := func(volumes ...string) {
			w.status(func(n *v1beta1.StorageNode) { n.Status.CephVolumes = volumes })
			w.Until("the record in the cache", func() bool {
				n, err := w.Backend.Watches.Holdfast.Holdfast().V1beta1().StorageNodes().Lister().Get(node)
				return err == nil && slices.Equal(n.Status.CephVolumes, volumes)
			})
		}
		record("v")
		inmemory.Expect(w, w.Backend.Delete(w.Context(), "v"), backend.ErrPrecondition, "volume v", "in use on node "+node)
		if v, err := w.Volumes().Get(w.Context(), "v", metav1.GetOptions{}); err != nil || v.DeletionRequested() {
			w.Errorf("its deletion is requested: %+v, %v", v, err)
		}
		record()
		if err := w.Backend.Delete(w.Context(), "v"); err != nil { // no pool has made it
			w.Errorf("a volume that no node has: %v", err)
		}
	})
}

func TestDetach_WaitsUntilTheNodeCannotWriteAnyMore(t *testing.T) {
	inBubble(t, func(w *world) {
		w.hosts("v")
		detached := func(volume string) error { return w.Backend.CheckDetached(w.Context(), backend.ID(volume), node) }
		is := func(of string) {
			w.Helper()
			if err := detached("v"); err != nil {
				w.Errorf("%s: %v", of, err)
			}
		}
		w.Until("the volume in the cache", func() bool { return detached("v") != nil })
		inmemory.Expect(w, detached("v"), backend.ErrUnavailable, "volume v", "node "+node, "is not shut out of its Ceph cluster", "kubectl taint node "+node+" node.kubernetes.io/out-of-service=nodeshutdown:NoExecute")
		for _, to := range []string{node, "other"} { // there is no VolumeAttachment: it was removed by force
			err := w.Backend.Attach(w.Context(), "v", to)
			if to == node && err != nil {
				w.Fatal(err)
			}
			if to != node {
				inmemory.Expect(w, err, backend.ErrUnavailable, "not detached from node "+node)
			}
		}
		for _, other := range []string{"local", "gone"} {
			if err := detached(other); err != nil {
				w.Errorf("%s: %v", other, err)
			}
		}
		fenced := func(status metav1.ConditionStatus) {
			w.status(func(n *v1beta1.StorageNode) {
				meta.SetStatusCondition(&n.Status.Conditions, metav1.Condition{Type: v1beta1.FencedCondition, Status: status, Reason: "Fencing", Message: "waiting for pool block"})
			})
		}
		fenced(metav1.ConditionFalse)
		inmemory.Expect(w, detached("v"), backend.ErrUnavailable, "waiting for pool block")
		fenced(metav1.ConditionTrue)
		is("of a node that is shut out")
		fenced(metav1.ConditionFalse)
		w.inUse("other")
		is("of a node that has unmounted it")
		w.status(func(n *v1beta1.StorageNode) { n.Status.CephVolumes = []string{"v", "forgotten"} })
		for _, v := range []string{"v", "forgotten"} { // as of a Node that was registered again, and of a Volume that was deleted
			inmemory.Expect(w, detached(v), backend.ErrUnavailable, "volume "+v, "may still write")
		}
		fenced(metav1.ConditionTrue)
		is("of a node that is shut out and has recorded it")
		fenced(metav1.ConditionFalse)
		w.status(func(n *v1beta1.StorageNode) { n.Status.CephVolumes = nil })
		w.inUse("v")
		recorded := check.Got(w.Nodes().Get(w.Context(), node, metav1.GetOptions{}))(w)
		again := func() {
			w.Helper()
			recorded.ResourceVersion, recorded.UID = "", ""
			check.Got(w.Nodes().Create(w.Context(), recorded, metav1.CreateOptions{}))(w)
			w.status(func(n *v1beta1.StorageNode) { n.Status = recorded.Status })
		}
		w.status(func(n *v1beta1.StorageNode) { n.Status.CephClients = nil })
		inmemory.Expect(w, detached("v"), backend.ErrUnavailable, "reports the volume as in use", "no record of a client", "delete the Node "+node)
		w.inUse("other")
		is("of a node without clients that does not use it")
		w.inUse("v")
		w.Until("a later second, which is all that objects have", func() bool { return time.Now().Unix() > recorded.CreationTimestamp.Unix() })
		w.attached("v", node, "v")
		is("of a node that has recorded no use since the volume was attached")
		check.OK(w, w.Nodes().Delete(w.Context(), node, metav1.DeleteOptions{}))
		inmemory.Expect(w, detached("v"), backend.ErrUnavailable, "its StorageNode was deleted", "delete the Node "+node)
		w.inUse("other")
		is("of a node that has unmounted it, without a StorageNode")
		w.inUse("v")
		again()
		check.OK(w, w.Theirs.CoreV1().Nodes().Delete(w.Context(), node, metav1.DeleteOptions{}))
		inmemory.Expect(w, detached("v"), backend.ErrUnavailable, "may still write")
		w.status(func(n *v1beta1.StorageNode) { n.Status.CephClients = nil })
		is("of a node without clients whose Node was deleted")
		w.status(func(n *v1beta1.StorageNode) { n.Status = recorded.Status })
		inmemory.Expect(w, detached("v"), backend.ErrUnavailable, "may still write")
		check.OK(w, w.Nodes().Delete(w.Context(), node, metav1.DeleteOptions{}))
		// If the machine runs, the agent of the pool sees its client when the volume is attached elsewhere.
		is("of a node whose Node and StorageNode were deleted")
		again()
		check.Got(w.Ours.HoldfastV1beta1().StorageClusters().Create(w.Context(), &v1beta1.StorageCluster{
			ObjectMeta: metav1.ObjectMeta{Name: "holdfast"}, Spec: v1beta1.StorageClusterSpec{Fencing: v1beta1.FencingSpec{Pods: v1beta1.FenceNone}},
		}, metav1.CreateOptions{}))(w)
		w.Until("the end of the detached where fencing is disabled", func() bool { return detached("v") == nil })
	})
}
