package volume

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	ourfake "github.com/holdfast-storage/holdfast/api/client/clientset/fake"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend/cluster"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestLead_EventsOfAVolumeAreForgottenWithItsObject(t *testing.T) {
	ours, theirs := ourfake.NewSimpleClientset(), fake.NewClientset()
	watches := kube.NewWatches(t.Context(), ours, theirs, v1beta1.DefaultNamespace)
	storage := check.Got(cluster.New(cluster.Config{Client: ours, Kubernetes: theirs, Watches: watches}))(t)
	c := check.Got(New(Config{Storage: storage, Events: record.NewFakeRecorder(10)}))(t)
	l := check.Got(c.leader())(t)
	objects := watches.Holdfast.Holdfast().V1beta1().Volumes().Informer().GetIndexer()
	const server = "shop.files.nfs.holdfast.dev"
	goes := &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: "goes", UID: "goes"}, Spec: v1beta1.VolumeSpec{Node: server}}
	stays := &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: "stays", UID: "stays"}, Spec: v1beta1.VolumeSpec{Node: server}}
	look := func() { check.Got(l.reconcileNode(t.Context(), server))(t) }
	look()
	for _, v := range []*v1beta1.Volume{goes, stays} {
		check.OK(t, objects.Add(v))
		l.recordLoss(v, []event{{about: v, reason: "VolumeGivenUp"}})
	}
	check.OK(t, objects.Delete(goes))
	look()
	reported, _ := l.reported.Load(server)
	if of := reported.(map[types.UID]bool); len(of) != 1 || !of["stays"] {
		t.Errorf("it remembers %v, want what still has an object", of)
	}
}

// At the start of a leader each StorageNode is looked at: with a walk of all volumes for each, 5,000 nodes would take minutes.
func TestMoved_NodesWithObjectsInAPoolAreFoundWithoutAWalk(t *testing.T) {
	ours, theirs := ourfake.NewSimpleClientset(), fake.NewClientset()
	watches := kube.NewWatches(t.Context(), ours, theirs, v1beta1.DefaultNamespace)
	storage := check.Got(cluster.New(cluster.Config{Client: ours, Kubernetes: theirs, Watches: watches}))(t)
	l := check.Got(check.Got(New(Config{Storage: storage}))(t).leader())(t)
	l.volumes, l.snapshots = nil, nil // a walk would panic
	kinds := watches.Holdfast.Holdfast().V1beta1()
	for node, pool := range map[string]string{"a": "disk", "b": "disk", "c": "other"} {
		v := &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: "on-" + node}, Spec: v1beta1.VolumeSpec{Node: node}, Status: v1beta1.VolumeStatus{PoolID: pool}}
		check.OK(t, kinds.Volumes().Informer().GetIndexer().Add(v))
	}
	s := &v1beta1.Snapshot{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: v1beta1.SnapshotSpec{Node: "d"}, Status: v1beta1.SnapshotStatus{PoolID: "disk"}}
	check.OK(t, kinds.Snapshots().Informer().GetIndexer().Add(s))
	n := &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	n.Status.Pools = []v1beta1.Pool{{ID: "disk"}, {ID: "other", Message: "it cannot be read"}, {}}
	if others := l.othersOf(n); !slices.Equal(others, []string{"b", "d"}) {
		t.Errorf("they are %q", others)
	}
}
