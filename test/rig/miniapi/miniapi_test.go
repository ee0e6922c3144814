package miniapi

import (
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	client "github.com/holdfast-storage/holdfast/api/client/clientset"
	typed "github.com/holdfast-storage/holdfast/api/client/clientset/typed/api/v1beta1"
	"github.com/holdfast-storage/holdfast/api/client/informers"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

func begin(t *testing.T) (*Server, typed.VolumeInterface, *v1beta1.Volume) {
	t.Helper()
	s := New(t)
	volumes := client.NewForConfigOrDie(s.Config()).HoldfastV1beta1().Volumes()
	v, err := volumes.Create(t.Context(), &v1beta1.Volume{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Finalizers: []string{v1beta1.AgentFinalizer}},
		Spec:       v1beta1.VolumeSpec{Name: "a", Node: "n"}, Status: v1beta1.VolumeStatus{Phase: v1beta1.PhaseReady},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s, volumes, v
}

func TestObject_SpecAndStatusAreWrittenSeparately(t *testing.T) {
	_, volumes, v := begin(t)
	v.Status.Phase = v1beta1.PhaseReady
	size := resource.MustParse("1Gi")
	v.Spec.Size.Required = &size
	status, err := volumes.UpdateStatus(t.Context(), v, metav1.UpdateOptions{})
	if err != nil || status.Status.Phase != v1beta1.PhaseReady || status.Spec.Size.Required != nil || status.Generation != 1 {
		t.Fatalf("got %+v, %v", status, err)
	}
	if _, err := volumes.Update(t.Context(), v, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("a write over a newer version: %v", err)
	}
	status.Status.Phase, status.Spec.Size.Required = v1beta1.PhaseLost, &size
	spec, err := volumes.Update(t.Context(), status, metav1.UpdateOptions{})
	if err != nil || spec.Status.Phase != v1beta1.PhaseReady || spec.Spec.Size.Required == nil || spec.Generation != 2 {
		t.Errorf("got %+v, %v", spec, err)
	}
	same, err := volumes.Update(t.Context(), spec, metav1.UpdateOptions{})
	if err != nil || same.ResourceVersion != spec.ResourceVersion {
		t.Errorf("writing nothing new: %+v, %v", same, err)
	}
}

// TestCache_FollowsThroughBrokenAndHeldWatches is what the tests of controllers depend on.
func TestCache_FollowsThroughBrokenAndHeldWatches(t *testing.T) {
	s, volumes, _ := begin(t)
	only := informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = "spec.node=n" })
	factory := informers.NewSharedInformerFactoryWithOptions(client.NewForConfigOrDie(s.Config()), 0, only)
	informer := factory.Holdfast().V1beta1().Volumes().Informer()
	changed := make(chan string, 100)
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { changed <- "+" + o.(*v1beta1.Volume).Name },
		UpdateFunc: func(_, o any) { changed <- "=" + o.(*v1beta1.Volume).Name },
		DeleteFunc: func(o any) { changed <- "-" + o.(*v1beta1.Volume).Name },
	})
	if err != nil {
		t.Fatal(err)
	}
	factory.StartWithContext(t.Context())
	expect := func(want string) {
		t.Helper()
		select {
		case got := <-changed:
			if got != want {
				t.Fatalf("got %s, want %s", got, want)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("no %s came", want)
		}
	}
	expect("+a")
	for _, v := range []v1beta1.Volume{{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: v1beta1.VolumeSpec{Node: "other"}}, {ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: v1beta1.VolumeSpec{Node: "n"}}} {
		if _, err := volumes.Create(t.Context(), &v, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	expect("+c")
	release := s.HoldWatches()
	if err := volumes.Delete(t.Context(), "c", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-changed:
		t.Errorf("%s came while the watches were held", got)
	default:
	}
	release()
	expect("-c")
	s.BreakWatches()
	if _, err := volumes.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"metadata":{"labels":{"x":"y"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("=a")
}
