package miniapi

import (
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
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

func TestObject_HasTheFieldsThatTheServerSets(t *testing.T) {
	_, volumes, v := begin(t)
	if v.UID == "" || v.ResourceVersion == "" || v.Generation != 1 || v.CreationTimestamp.IsZero() || v.Status.Phase != "" {
		t.Errorf("got %+v", v)
	}
	if _, err := volumes.Create(t.Context(), v, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("a second one: %v", err)
	}
	if _, err := volumes.Get(t.Context(), "b", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("an absent one: %v", err)
	}
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

func TestFinalizer_HoldsADeletion(t *testing.T) {
	_, volumes, _ := begin(t)
	wrong := types.UID("other")
	err := volumes.Delete(t.Context(), "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &wrong}})
	if !apierrors.IsConflict(err) {
		t.Errorf("the deletion of another incarnation: %v", err)
	}
	if err := volumes.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	v, err := volumes.Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil || v.DeletionTimestamp == nil {
		t.Fatalf("got %+v, %v", v, err)
	}
	if _, err := volumes.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := volumes.Get(t.Context(), "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after the last finalizer: %v", err)
	}
}

func TestApply_ConditionsOfTwoManagersCoexist(t *testing.T) {
	_, volumes, _ := begin(t)
	for _, kind := range []string{"Ready", "Healthy", "Ready"} {
		patch := `{"apiVersion":"holdfast.dev/v1beta1","kind":"Volume","metadata":{"name":"a"},"status":{"conditions":[{"type":"` + kind + `","status":"True"}]}}`
		if _, err := volumes.Patch(t.Context(), "a", types.ApplyPatchType, []byte(patch), metav1.PatchOptions{FieldManager: kind}, "status"); err != nil {
			t.Fatal(err)
		}
	}
	v, err := volumes.Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil || len(v.Status.Conditions) != 2 || !meta.IsStatusConditionTrue(v.Status.Conditions, "Healthy") {
		t.Errorf("got %+v, %v", v.Status, err)
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

func TestKinds_NamespacedOnesAndSelectorsWork(t *testing.T) {
	s := New(t)
	claims := kubernetes.NewForConfigOrDie(s.Config()).CoreV1().PersistentVolumeClaims("one")
	claim := &core.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", Labels: map[string]string{"app": "x"}}, Spec: core.PersistentVolumeClaimSpec{VolumeName: "v"}}
	if _, err := claims.Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for selector, want := range map[string]int{"app=x": 1, "app=y": 0, "": 1} {
		list, err := claims.List(t.Context(), metav1.ListOptions{LabelSelector: selector})
		if err != nil || len(list.Items) != want {
			t.Errorf("%q: %d, %v", selector, len(list.Items), err)
		}
	}
	other, err := kubernetes.NewForConfigOrDie(s.Config()).CoreV1().PersistentVolumeClaims("two").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(other.Items) != 0 {
		t.Errorf("in another namespace: %v, %v", other.Items, err)
	}
	if n := s.Requests()["list persistentvolumeclaims"]; n != 4 {
		t.Errorf("%d lists were counted", n)
	}
}

func TestSelector_ObjectsComeAndGoByTheirLabels(t *testing.T) {
	claims := kubernetes.NewForConfigOrDie(New(t).Config()).CoreV1().PersistentVolumeClaims("one")
	watching, err := claims.Watch(t.Context(), metav1.ListOptions{LabelSelector: "app=x"})
	if err != nil {
		t.Fatal(err)
	}
	defer watching.Stop()
	label := func(app string) {
		if _, err := claims.Patch(t.Context(), "c", types.MergePatchType, []byte(`{"metadata":{"labels":{"app":"`+app+`"}}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	claim := &core.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", Labels: map[string]string{"app": "y"}}}
	if _, err := claims.Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, app := range []string{"z", "x", "y", "x"} {
		label(app)
	}
	if err := claims.Delete(t.Context(), "c", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []watch.EventType{watch.Added, watch.Deleted, watch.Added, watch.Deleted} {
		if e := <-watching.ResultChan(); e.Type != want {
			t.Errorf("%s came, want %s", e.Type, want)
		}
	}
}
