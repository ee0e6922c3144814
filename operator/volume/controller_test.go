package volume

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	goes := &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: "goes", UID: "goes"}, Spec: v1beta1.VolumeSpec{Node: "a"}}
	stays := &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: "stays", UID: "stays"}, Spec: v1beta1.VolumeSpec{Node: "a"}}
	for _, v := range []*v1beta1.Volume{goes, stays} {
		check.OK(t, objects.Add(v))
		l.recordLoss(v, []event{{about: v, reason: "VolumeGivenUp"}})
	}
	check.OK(t, objects.Delete(goes))
	const idle = "shop.files.nfs.holdfast.dev" // nothing is on it
	check.Got(l.reconcileNode(t.Context(), idle))(t)
	if len(l.reported) != 1 || !l.reported["stays"] {
		t.Errorf("it remembers %v, want what still has an object", l.reported)
	}
}
