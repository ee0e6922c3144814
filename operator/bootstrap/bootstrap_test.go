package bootstrap

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset/fake"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// world is an API server with a namespace, which asks for a StorageCluster unless it is changed.
type world struct {
	namespace *core.Namespace
	clusters  []runtime.Object
	refusal   error
}

func (w world) make(t *testing.T) ([]v1beta1.StorageCluster, error) {
	t.Helper()
	client := holdfast.NewSimpleClientset(w.clusters...)
	if w.refusal != nil {
		client.PrependReactor("create", "storageclusters", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, w.refusal })
	}
	err := Make(t.Context(), fake.NewSimpleClientset(w.namespace), client, "storage", slog.New(slog.DiscardHandler))
	list := check.Got(client.HoldfastV1beta1().StorageClusters().List(t.Context(), metav1.ListOptions{}))(t)
	return list.Items, err
}

func asking() *core.Namespace {
	return &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "storage", Annotations: map[string]string{"holdfast.dev/first-cluster": "mine"}}}
}

func TestFirst_NewInstallationGetsAStorageCluster(t *testing.T) {
	made, err := world{namespace: asking()}.make(t)
	if err != nil || len(made) != 1 || made[0].Name != "mine" {
		t.Errorf("%v %v", made, err)
	}
}

func TestFirst_NoStorageClusterWithoutARequest(t *testing.T) {
	silent, going, owned, other := asking(), asking(), asking(), asking()
	silent.Annotations = nil
	going.DeletionTimestamp, going.Finalizers = &metav1.Time{}, []string{"kubernetes"}
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "holdfast.dev/v1beta1", Kind: "StorageCluster", Name: "mine", UID: "gone"}}
	other.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Tenant", Name: "a", UID: "1"}}
	for name, test := range map[string]struct {
		namespace *core.Namespace
		want      int
	}{
		"a namespace that asks for none":                    {silent, 0},
		"a namespace that is being deleted":                 {going, 0},
		"a namespace whose StorageCluster has been deleted": {owned, 0},
		"a namespace that belongs to something else":        {other, 1},
	} {
		if made, err := (world{namespace: test.namespace}).make(t); err != nil || len(made) != test.want {
			t.Errorf("%s: %v %v", name, made, err)
		}
	}
}

func TestFirst_ExistingStorageClusterIsLeftAlone(t *testing.T) {
	for _, name := range []string{"mine", "other"} {
		there := &v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.StorageClusterSpec{Debug: true}}
		made, err := world{namespace: asking(), clusters: []runtime.Object{there}}.make(t)
		if err != nil || len(made) != 1 || made[0].Name != name || !made[0].Spec.Debug {
			t.Errorf("%v %v", made, err)
		}
	}
}

func TestFirst_RefusalNamesItsCause(t *testing.T) {
	refusal := errors.New("no such kind")
	made, err := world{namespace: asking(), refusal: refusal}.make(t)
	if !errors.Is(err, refusal) || len(made) > 0 || !strings.Contains(err.Error(), "mine") || !strings.Contains(err.Error(), "namespace storage") {
		t.Errorf("%v %v", made, err)
	}
	elsewhere := asking()
	elsewhere.Name = "elsewhere"
	if _, err := (world{namespace: elsewhere}).make(t); err == nil || !strings.Contains(err.Error(), "storage") {
		t.Errorf("in a namespace that is not there: %v", err)
	}
}
