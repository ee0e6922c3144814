package definitions

import (
	"encoding/json"
	"net/http"
	"testing"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset/fake"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func home(change func(*core.Namespace)) *core.Namespace {
	ns := &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "storage"}}
	if change != nil {
		change(ns)
	}
	return ns
}

func account(owners ...metav1.OwnerReference) *core.ServiceAccount {
	return &core.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: "holdfast-controller", OwnerReferences: owners}}
}

func belonging(ns *core.Namespace) {
	ns.OwnerReferences = []metav1.OwnerReference{{APIVersion: "holdfast.dev/v1beta1", Kind: "StorageCluster", Name: "mine", UID: "1"}}
}

type world struct {
	kubernetes kubernetes.Interface
	dynamic    dynamic.Interface
	*Controller
}

func newWorld(t *testing.T, clusters []runtime.Object, objects ...runtime.Object) *world {
	t.Helper()
	known := map[schema.GroupVersionResource]string{
		kube.Definitions: "CustomResourceDefinitionList",
		v1beta1.SchemeGroupVersion.WithResource("storageclusters"): "StorageClusterList", v1beta1.SchemeGroupVersion.WithResource("nfsservers"): "NFSServerList",
	}
	w := &world{kubernetes: fake.NewSimpleClientset(objects...), dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), known)}
	var err error
	w.Controller, err = New(Config{Client: holdfast.NewSimpleClientset(clusters...), Kubernetes: w.kubernetes, Dynamic: w.dynamic, Namespace: "storage"})
	check.OK(t, err)
	return w
}

func TestUninstalling_IsSaidByTheNamespaceOrTheAccount(t *testing.T) {
	cluster := []runtime.Object{&v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}}
	going := home(func(ns *core.Namespace) {
		ns.DeletionTimestamp, ns.Finalizers = &metav1.Time{}, []string{"kubernetes"}
	})
	owned := account(metav1.OwnerReference{APIVersion: "holdfast.dev/v1beta1", Kind: "StorageCluster", Name: "mine", UID: "1"})
	for what, test := range map[string]struct {
		clusters []runtime.Object
		home     []runtime.Object
		want     bool
	}{
		"a new installation, or one whose StorageCluster lost its finalizer": {nil, []runtime.Object{home(nil), account()}, false},
		"one in a namespace of others, whose StorageCluster was removed":     {nil, []runtime.Object{home(nil), owned}, true},
		"one in a namespace of others, with a StorageCluster":                {cluster, []runtime.Object{home(nil), owned}, false},
		"one in a namespace of others, whose account is gone":                {cluster, []runtime.Object{home(nil)}, true},
		"one with a StorageCluster":                                          {cluster, []runtime.Object{home(belonging)}, false},
		"one whose StorageCluster was removed":                               {nil, []runtime.Object{home(belonging)}, true},
		"one whose namespace goes":                                           {cluster, []runtime.Object{going}, true},
		"one whose namespace is gone":                                        {cluster, nil, true},
	} {
		got, err := newWorld(t, test.clusters, test.home...).uninstalling(t.Context())
		if err != nil || got != test.want {
			t.Errorf("%s: %t, %v", what, got, err)
		}
	}
}

func stored(kind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "holdfast.dev/v1beta1", "kind": kind, "spec": map[string]any{"debug": true, "paused": true}, "status": map[string]any{"phase": "Running"},
	}}
	o.SetName(name)
	o.SetNamespace(namespace)
	o.SetUID("1")
	o.SetResourceVersion("7")
	o.SetFinalizers([]string{v1beta1.OperatorFinalizer})
	o.SetLabels(map[string]string{"a": "b"})
	return o
}

func TestKeep_RecordsRequestedDefinitionsAndRestoreCreatesThem(t *testing.T) {
	w := newWorld(t, nil, home(nil))
	paused := stored("StorageCluster", "", "mine")
	paused.SetAnnotations(map[string]string{v1beta1.PausedByAnnotation: "upgrade", "c": "d"})
	for _, o := range []*unstructured.Unstructured{paused, stored("NFSServer", "team", "nfs1"), paused} {
		check.OK(t, w.keep(t.Context(), o))
	}
	kept, err := w.kubernetes.CoreV1().ConfigMaps("storage").Get(t.Context(), keptName, metav1.GetOptions{})
	if err != nil || len(kept.Data) != 2 || kept.Data["nfsservers.team.nfs1"] == "" {
		t.Fatalf("%v, %v", kept, err)
	}
	check.OK(t, w.restore(t.Context(), storageClusters))
	made, err := w.dynamic.Resource(v1beta1.SchemeGroupVersion.WithResource("storageclusters")).Get(t.Context(), "mine", metav1.GetOptions{})
	check.OK(t, err)
	text, _ := json.Marshal(made.Object)
	if want := `{"apiVersion":"holdfast.dev/v1beta1","kind":"StorageCluster","metadata":{"annotations":{"c":"d"},"labels":{"a":"b"},"name":"mine"},"spec":{"debug":true}}`; string(text) != want {
		t.Errorf("it is made as %s", text)
	}
	check.OK(t, w.restore(t.Context(), nfsServers))
	server, err := w.dynamic.Resource(v1beta1.SchemeGroupVersion.WithResource("nfsservers")).Namespace("team").Get(t.Context(), "nfs1", metav1.GetOptions{})
	if paused, _, _ := unstructured.NestedBool(server.Object, "spec", "paused"); err != nil || !paused {
		t.Errorf("the server is %v, %v", server, err)
	}
	if _, err := w.kubernetes.CoreV1().ConfigMaps("storage").Get(t.Context(), keptName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("what was written down is still there: %v", err)
	}
}

func TestRestore_OneThatIsThereStaysAndARefusalIsTriedAgain(t *testing.T) {
	w := newWorld(t, nil, home(nil))
	theirs := stored("StorageCluster", "", "mine")
	theirs.Object["spec"] = map[string]any{"debug": false}
	kind := w.dynamic.Resource(v1beta1.SchemeGroupVersion.WithResource("storageclusters"))
	check.OK(t, w.keep(t.Context(), stored("StorageCluster", "", "mine")))
	refuse := true
	w.dynamic.(*dynamicfake.FakeDynamicClient).PrependReactor("create", "storageclusters", func(clienttesting.Action) (bool, runtime.Object, error) {
		return refuse, nil, apierrors.NewMethodNotSupported(schema.GroupResource{}, "create")
	})
	if err := w.Restore(t.Context()); err == nil {
		t.Error("a refusal is no error")
	}
	refuse = false
	check.Got(kind.Create(t.Context(), theirs, metav1.CreateOptions{}))(t)
	check.OK(t, w.Restore(t.Context()))
	made, err := kind.Get(t.Context(), "mine", metav1.GetOptions{})
	if debug, _, _ := unstructured.NestedBool(made.Object, "spec", "debug"); err != nil || debug {
		t.Errorf("it is %v, %v", made, err)
	}
	if _, err := w.kubernetes.CoreV1().ConfigMaps("storage").Get(t.Context(), keptName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("what was written down is still there: %v", err)
	}
}

func TestRestore_AServerWhoseNamespaceIsGoneIsForgotten(t *testing.T) {
	w := newWorld(t, nil, home(nil))
	check.OK(t, w.keep(t.Context(), stored("NFSServer", "team", "nfs1")))
	w.dynamic.(*dynamicfake.FakeDynamicClient).PrependReactor("create", "nfsservers", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "team")
	})
	check.OK(t, w.restore(t.Context(), nfsServers))
	if _, err := w.kubernetes.CoreV1().ConfigMaps("storage").Get(t.Context(), keptName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("what was written down is still there: %v", err)
	}
}

func TestRestore_AServerWhoseKindIsNotServedYetIsKept(t *testing.T) {
	for what, unreadable := range map[string]bool{"its namespace exists": false, "its namespace cannot be read": true} {
		w := newWorld(t, nil, home(nil), &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}})
		check.OK(t, w.keep(t.Context(), stored("NFSServer", "team", "nfs1")))
		w.dynamic.(*dynamicfake.FakeDynamicClient).PrependReactor("create", "nfsservers", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewGenericServerResponse(http.StatusNotFound, "post", schema.GroupResource{Group: v1beta1.GroupName, Resource: "nfsservers"}, "", "404 page not found", 0, true)
		})
		w.kubernetes.(*fake.Clientset).PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
			return unreadable, nil, apierrors.NewTooManyRequests("later", 1)
		})
		if err := w.restore(t.Context(), nfsServers); !apierrors.IsNotFound(err) {
			t.Errorf("%s: %v", what, err)
		}
		kept, err := w.kubernetes.CoreV1().ConfigMaps("storage").Get(t.Context(), keptName, metav1.GetOptions{})
		if err != nil || kept.Data["nfsservers.team.nfs1"] == "" {
			t.Errorf("%s: what was written down is %v, %v", what, kept, err)
		}
	}
}

func TestWhole_OnlyWhenAKindIsServedAndHasItsObjectsBack(t *testing.T) {
	w := newWorld(t, nil, home(nil), &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}})
	kind := func(name, uid string, served bool) {
		d := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}}
		d.SetName(name)
		d.SetUID(types.UID(uid))
		if served {
			d.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Established", "status": "True"}}}
		}
		check.OK(t, w.informer.GetIndexer().Add(d))
	}
	is := func(what, resource string, want bool) {
		t.Helper()
		if got := w.Whole(resource); got != want {
			t.Errorf("%s: whole is %t", what, got)
		}
	}
	is("no kind", "nfsservers", false)
	kind(volumes, "1", false)
	is("a kind that is not served", "volumes", false)
	kind(volumes, "1", true)
	is("one without stored objects", "volumes", true)

	kind(nfsServers, "1", true)
	is("its objects are not looked for yet", "nfsservers", false)
	check.Got(w.reconcile(t.Context(), nfsServers))(t)
	is("it has no stored objects", "nfsservers", true)

	kind(nfsServers, "2", true) // it was deleted and recreated
	check.OK(t, w.keep(t.Context(), stored("NFSServer", "team", "nfs1")))
	is("its objects are stored", "nfsservers", false)
	refuse := true
	w.dynamic.(*dynamicfake.FakeDynamicClient).PrependReactor("create", "nfsservers", func(clienttesting.Action) (bool, runtime.Object, error) {
		return refuse, nil, apierrors.NewTooManyRequests("later", 1)
	})
	if _, err := w.reconcile(t.Context(), nfsServers); err == nil {
		t.Error("a refusal is no error")
	}
	is("one is refused", "nfsservers", false)
	refuse = false
	check.Got(w.reconcile(t.Context(), nfsServers))(t)
	is("they are back", "nfsservers", true)
}

func TestCreate_KindOfAHelmReleaseIsRecreatedAsOneOfIt(t *testing.T) {
	w := newWorld(t, nil, home(nil))
	was := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}}
	was.SetName(volumes)
	was.SetAnnotations(map[string]string{"meta.helm.sh/release-name": "holdfast", "of": "others"})
	was.SetManagedFields([]metav1.ManagedFieldsEntry{{
		Manager: "helm", Operation: metav1.ManagedFieldsOperationApply, FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:meta.helm.sh/release-name":{}}}}`),
	}})
	slim := check.Got(w.slim(was))(t)
	if _, err := w.slim(slim); err != nil { // as informers do
		t.Fatal(err)
	}
	w.dynamic.(*dynamicfake.FakeDynamicClient).PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, was, nil })
	check.OK(t, w.create(t.Context(), volumes))
	patch := w.dynamic.(*dynamicfake.FakeDynamicClient).Actions()[0].(clienttesting.PatchActionImpl)
	made := &unstructured.Unstructured{}
	check.OK(t, json.Unmarshal(patch.Patch, made))
	if annotations := made.GetAnnotations(); patch.PatchOptions.FieldManager != "helm" || annotations["meta.helm.sh/release-name"] != "holdfast" ||
		annotations["of"] != "" || made.GetLabels()[apply.ManagedByLabel] != "Helm" {
		t.Errorf("%s makes it with %v, %v", patch.PatchOptions.FieldManager, made.GetLabels(), annotations)
	}
}
