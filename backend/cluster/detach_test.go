package cluster_test

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
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
	w.started()
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
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
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
			inmemory.Expect(t, w.Backend.Attach(t.Context(), "v", "other"), backend.ErrUnavailable, "not detached from node "+node)
		}
		w.status(func(n *v1beta1.StorageNode) { n.Status.CephVolumes = nil })
		w.inUse()
		if err := w.Backend.Attach(t.Context(), "v", "other"); err != nil {
			t.Errorf("once that node has it no more: %v", err)
		}
	})
}

func TestDelete_OfAVolumeThatTheKernelOfANodeHasIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.hosts("v")
		record := func(volumes ...string) {
			w.status(func(n *v1beta1.StorageNode) { n.Status.CephVolumes = volumes })
			w.Until("the record in the cache", func() bool {
				n, err := w.Backend.Watches.Holdfast.Holdfast().V1beta1().StorageNodes().Lister().Get(node)
				return err == nil && slices.Equal(n.Status.CephVolumes, volumes)
			})
		}
		record("v")
		inmemory.Expect(t, w.Backend.Delete(t.Context(), "v"), backend.ErrPrecondition, "volume v", "in use on node "+node)
		if v, err := w.Volumes().Get(t.Context(), "v", metav1.GetOptions{}); err != nil || v.DeletionRequested() {
			t.Errorf("its deletion is requested: %+v, %v", v, err)
		}
		record()
		if err := w.Backend.Delete(t.Context(), "v"); err != nil { // no pool has made it
			t.Errorf("a volume that no node has: %v", err)
		}
	})
}

func TestDetach_WaitsUntilTheNodeCannotWriteAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.hosts("v")
		detached := func(volume string) error { return w.Backend.CheckDetached(t.Context(), backend.ID(volume), node) }
		w.Until("the volume in the cache", func() bool { return detached("v") != nil })
		inmemory.Expect(t, detached("v"), backend.ErrUnavailable, "volume v", "node "+node, "is not shut out of its Ceph cluster", "node.kubernetes.io/out-of-service")
		for _, to := range []string{node, "other"} { // there is no VolumeAttachment: it was removed by force
			err := w.Backend.Attach(t.Context(), "v", to)
			if to == node && err != nil {
				t.Fatal(err)
			}
			if to != node {
				inmemory.Expect(t, err, backend.ErrUnavailable, "not detached from node "+node)
			}
		}
		for _, other := range []string{"local", "gone"} {
			if err := detached(other); err != nil {
				t.Errorf("%s: %v", other, err)
			}
		}
		fenced := func(status metav1.ConditionStatus) {
			w.status(func(n *v1beta1.StorageNode) {
				meta.SetStatusCondition(&n.Status.Conditions, metav1.Condition{Type: v1beta1.FencedCondition, Status: status, Reason: "Fencing", Message: "waiting for pool block"})
			})
		}
		fenced(metav1.ConditionFalse)
		inmemory.Expect(t, detached("v"), backend.ErrUnavailable, "waiting for pool block")
		fenced(metav1.ConditionTrue)
		if err := detached("v"); err != nil {
			t.Errorf("of a node that is shut out: %v", err)
		}
		fenced(metav1.ConditionFalse)
		w.inUse("other")
		if err := detached("v"); err != nil {
			t.Errorf("of a node that has unmounted it: %v", err)
		}
		record := func(volumes ...string) {
			w.status(func(n *v1beta1.StorageNode) { n.Status.CephVolumes = volumes })
		}
		record("v", "forgotten")
		for _, v := range []string{"v", "forgotten"} { // as of a Node that was registered again, and of a Volume that was deleted
			inmemory.Expect(t, detached(v), backend.ErrUnavailable, "volume "+v, "may still write")
		}
		fenced(metav1.ConditionTrue)
		if err := detached("v"); err != nil {
			t.Errorf("of a node that is shut out and has recorded it: %v", err)
		}
		fenced(metav1.ConditionFalse)
		record()
		w.inUse("v")
		recorded, err := w.Nodes().Get(t.Context(), node, metav1.GetOptions{})
		w.status(func(n *v1beta1.StorageNode) { n.Status.CephClients = nil })
		inmemory.Expect(t, detached("v"), backend.ErrUnavailable, "reports the volume as in use", "no record of a client", "delete the Node "+node)
		w.inUse("other")
		if err := detached("v"); err != nil {
			t.Errorf("of a node without clients that does not use it: %v", err)
		}
		w.inUse("v")
		check.OK(t, err)
		w.Until("a later second, which is all that objects have", func() bool { return time.Now().Unix() > recorded.CreationTimestamp.Unix() })
		attachment := &storage.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("csi-%x", sha256.Sum256([]byte("v"+v1beta1.DriverName+node)))},
			Spec:       storage.VolumeAttachmentSpec{Attacher: v1beta1.DriverName, NodeName: node, Source: storage.VolumeAttachmentSource{PersistentVolumeName: new("v")}},
		}
		check.Got(w.Theirs.StorageV1().VolumeAttachments().Create(t.Context(), attachment, metav1.CreateOptions{}))(t)
		if err := detached("v"); err != nil {
			t.Errorf("of a node that has recorded no use since the volume was attached: %v", err)
		}
		err = w.Nodes().Delete(t.Context(), node, metav1.DeleteOptions{})
		check.OK(t, err)
		inmemory.Expect(t, detached("v"), backend.ErrUnavailable, "its StorageNode was deleted", "delete the Node "+node)
		w.inUse("other")
		if err := detached("v"); err != nil {
			t.Errorf("of a node that has unmounted it, without a StorageNode: %v", err)
		}
		w.inUse("v")
		recorded.ResourceVersion, recorded.UID = "", ""
		check.Got(w.Nodes().Create(t.Context(), recorded, metav1.CreateOptions{}))(t)
		w.status(func(n *v1beta1.StorageNode) { n.Status = recorded.Status })
		check.OK(t, w.Theirs.CoreV1().Nodes().Delete(t.Context(), node, metav1.DeleteOptions{}))
		inmemory.Expect(t, detached("v"), backend.ErrUnavailable, "may still write")
		w.status(func(n *v1beta1.StorageNode) { n.Status.CephClients = nil })
		if err := detached("v"); err != nil {
			t.Errorf("of a node without clients whose Node was deleted: %v", err)
		}
		w.status(func(n *v1beta1.StorageNode) { n.Status = recorded.Status })
		inmemory.Expect(t, detached("v"), backend.ErrUnavailable, "may still write")
		check.OK(t, w.Nodes().Delete(t.Context(), node, metav1.DeleteOptions{}))
		if err := detached("v"); err != nil { // if the machine runs, the agent of the pool sees its client when the volume is attached elsewhere
			t.Errorf("of a node whose Node and StorageNode were deleted: %v", err)
		}
		recorded.ResourceVersion, recorded.UID = "", ""
		check.Got(w.Nodes().Create(t.Context(), recorded, metav1.CreateOptions{}))(t)
		w.status(func(n *v1beta1.StorageNode) { n.Status = recorded.Status })
		_, err = w.Ours.HoldfastV1beta1().StorageClusters().Create(t.Context(), &v1beta1.StorageCluster{
			ObjectMeta: metav1.ObjectMeta{Name: "holdfast"}, Spec: v1beta1.StorageClusterSpec{Fencing: v1beta1.FencingSpec{Pods: v1beta1.FenceNone}},
		}, metav1.CreateOptions{})
		check.OK(t, err)
		w.Until("the end of the detached where fencing is disabled", func() bool { return detached("v") == nil })
	})
}
