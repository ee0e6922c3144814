package v1_test

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	applyv1 "github.com/holdfast-storage/holdfast/api/client/applyconfiguration/api/v1"
	"github.com/holdfast-storage/holdfast/api/client/clientset/fake"
	"github.com/holdfast-storage/holdfast/api/client/informers"
	v1 "github.com/holdfast-storage/holdfast/api/v1"
)

func TestAFakeClientKnowsWhoOwnsAField(t *testing.T) {
	volumes := fake.NewClientset().HoldfastV1().Volumes()
	spec := applyv1.Volume("a").WithSpec(applyv1.VolumeSpec().WithName("a").WithNode("n").WithPool("fast"))
	if _, err := volumes.Apply(t.Context(), spec, metav1.ApplyOptions{FieldManager: "controller"}); err != nil {
		t.Fatal(err)
	}
	phase := applyv1.Volume("a").WithStatus(applyv1.VolumeStatus().WithPhase(v1.PhaseReady).WithPool("fast"))
	v, err := volumes.ApplyStatus(t.Context(), phase, metav1.ApplyOptions{FieldManager: "agent"})
	if err != nil {
		t.Fatal(err)
	}
	if v.Spec.Pool != "fast" || v.Status.Phase != v1.PhaseReady {
		t.Errorf("what both managers wrote is %+v", v)
	}
	other := applyv1.Volume("a").WithSpec(applyv1.VolumeSpec().WithName("a").WithNode("n").WithPool("slow"))
	if _, err := volumes.Apply(t.Context(), other, metav1.ApplyOptions{FieldManager: "other"}); !apierrors.IsConflict(err) {
		t.Errorf("another manager's write of the same field: got %v, want a conflict", err)
	}
	own, err := applyv1.ExtractVolume(v, "controller")
	if err != nil || own.Spec == nil || *own.Spec.Pool != "fast" || own.Status != nil {
		t.Errorf("the controller's own fields are %+v, %v", own, err)
	}
}

func TestAListerHasWhatTheClientHas(t *testing.T) {
	client := fake.NewClientset(
		&v1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: "first"}},
		&v1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: "second"}},
	)
	factory := informers.NewSharedInformerFactory(client, 0)
	nodes := factory.Holdfast().V1().StorageNodes()
	informer := nodes.Informer()
	factory.Start(t.Context().Done())
	t.Cleanup(factory.Shutdown)
	if !cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) {
		t.Fatal("the informer never synced")
	}
	list, err := nodes.Lister().List(labels.Everything())
	if err != nil || len(list) != 2 {
		t.Errorf("the lister has %v, %v", list, err)
	}
	if n, err := nodes.Lister().Get("second"); err != nil || n.Name != "second" {
		t.Errorf("got %v, %v", n, err)
	}
	if _, err := nodes.Lister().Get("third"); !apierrors.IsNotFound(err) {
		t.Errorf("a node that does not exist: got %v", err)
	}
}
