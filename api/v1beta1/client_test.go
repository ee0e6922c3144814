package v1beta1_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/holdfast-storage/holdfast/api/client/clientset/fake"
	"github.com/holdfast-storage/holdfast/api/client/clientset/scheme"
	"github.com/holdfast-storage/holdfast/api/client/informers"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestLister_HasEveryKindOfTheClient(t *testing.T) {
	client := fake.NewSimpleClientset(
		&v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: "first"}},
		&v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: "second"}},
	)
	factory := informers.NewSharedInformerFactory(client, 0)
	nodes := factory.Holdfast().V1beta1().StorageNodes()
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

// typed is the client of a kind.
type typed[T, L any] interface {
	Create(context.Context, T, metav1.CreateOptions) (T, error)
	Update(context.Context, T, metav1.UpdateOptions) (T, error)
	UpdateStatus(context.Context, T, metav1.UpdateOptions) (T, error)
	Get(context.Context, string, metav1.GetOptions) (T, error)
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
	Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (T, error)
	Delete(context.Context, string, metav1.DeleteOptions) error
}

func TestFakeClient_ServesEveryKind(t *testing.T) {
	client := fake.NewSimpleClientset().HoldfastV1beta1()
	served := map[string]bool{}
	serve(t, served, client.StorageClusters(), &v1beta1.StorageCluster{})
	serve(t, served, client.StorageUpgrades(), &v1beta1.StorageUpgrade{})
	serve(t, served, client.NodeJobs(), &v1beta1.NodeJob{})
	serve(t, served, client.NFSServers("ns"), &v1beta1.NFSServer{})
	serve(t, served, client.StorageNodes(), &v1beta1.StorageNode{})
	serve(t, served, client.Volumes(), &v1beta1.Volume{})
	serve(t, served, client.Snapshots(), &v1beta1.Snapshot{})
	for kind := range scheme.Scheme.KnownTypes(v1beta1.SchemeGroupVersion) {
		if of, isList := strings.CutSuffix(kind, "List"); isList && !served[of] {
			t.Errorf("%s was not tried", of)
		}
	}
}

// serve goes through the life of an object. Other than a server, the fake keeps what a write to the status says of the
// rest.
func serve[T interface {
	metav1.Object
	runtime.Object
}, L runtime.Object](t *testing.T, served map[string]bool, c typed[T, L], o T) {
	t.Helper()
	kinds, _, err := scheme.Scheme.ObjectKinds(o)
	check.OK(t, err)
	kind := kinds[0].Kind
	served[kind] = true
	changes, err := c.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatalf("%s: %v", kind, err)
	}
	defer changes.Stop()
	o.SetName("a")
	_, made := c.Create(t.Context(), o, metav1.CreateOptions{})
	got, read := c.Get(t.Context(), "a", metav1.GetOptions{})
	if err := errors.Join(made, read); err != nil {
		t.Fatalf("%s: %v", kind, err)
	}
	if change := <-changes.ResultChan(); change.Type != watch.Added {
		t.Errorf("%s: the watch says %s", kind, change.Type)
	}
	got.SetLabels(map[string]string{"team": "a"})
	_, updated := c.Update(t.Context(), got, metav1.UpdateOptions{})
	_, status := c.UpdateStatus(t.Context(), got, metav1.UpdateOptions{})
	patched, err := c.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"metadata":{"annotations":{"note":"b"}}}`), metav1.PatchOptions{})
	if err := errors.Join(updated, status, err); err != nil || patched.GetLabels()["team"] != "a" || patched.GetAnnotations()["note"] != "b" {
		t.Errorf("%s: it became %v, %v", kind, patched, err)
	}
	list, err := c.List(t.Context(), metav1.ListOptions{LabelSelector: "team=a"})
	if err != nil || meta.LenList(list) != 1 {
		t.Errorf("%s: the list has %d, %v", kind, meta.LenList(list), err)
	}
	gone := c.Delete(t.Context(), "a", metav1.DeleteOptions{})
	if _, err := c.Get(t.Context(), "a", metav1.GetOptions{}); gone != nil || !apierrors.IsNotFound(err) {
		t.Errorf("%s: after its deletion: %v, %v", kind, gone, err)
	}
}
