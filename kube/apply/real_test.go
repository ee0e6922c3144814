package apply

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// What only a real API server does: track the owners of fields, and refuse changes.

var (
	deployments = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	bindings    = schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"}
)

type realRig struct {
	*testing.T
	client dynamic.Interface
	set    *Set
}

func newRealRig(t *testing.T) *realRig {
	t.Helper()
	config := realapi.Config(t)
	r := &realRig{T: t, client: dynamic.NewForConfigOrDie(config)}
	var err error
	r.set, err = New(Config{
		Client: r.client, Resources: kubernetes.NewForConfigOrDie(config).Discovery().ServerResourcesForGroupVersion,
		Kinds: []schema.GroupVersionKind{configMaps, classes, deployments, bindings}, Namespace: namespace, Name: "test",
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	check.OK(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	check.OK(t, r.set.Start(ctx))
	t.Cleanup(func() {
		for _, o := range r.set.List() {
			_ = r.set.Delete(context.Background(), o)
		}
	})
	return r
}

func (r *realRig) of(o *unstructured.Unstructured) dynamic.ResourceInterface {
	return r.set.watch(RefOf(o).GroupKind).client(r.client, namespace)
}

func (r *realRig) live(o *unstructured.Unstructured) *unstructured.Unstructured {
	r.Helper()
	return check.Got(r.of(o).Get(r.Context(), o.GetName(), metav1.GetOptions{}))(r)
}

func (r *realRig) apply(o *unstructured.Unstructured) {
	r.Helper()
	check.OK(r, r.set.Apply(r.Context(), list(o)).Err())
}

// edited applies an object, edits it as a user, waits until the edit is in the cache, and applies again.
func (r *realRig) edited(o *unstructured.Unstructured, manager, patch string) *unstructured.Unstructured {
	r.Helper()
	r.apply(o.DeepCopy())
	wait.Until(r, "the object", func() bool { return r.set.watch(RefOf(o).GroupKind).get(RefOf(o).NamespacedName) != nil })
	edited := check.Got(r.of(o).Patch(r.Context(), o.GetName(), types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: manager}))(r)
	wait.Until(r, "the edit", func() bool {
		cached := r.set.watch(RefOf(o).GroupKind).get(RefOf(o).NamespacedName)
		if cached != nil {
			return !older(cached, edited)
		}
		// The edit removed its label: the event of that, which would queue a reconcile, must have arrived too.
		r.set.mu.Lock()
		defer r.set.mu.Unlock()
		return r.set.records[RefOf(o)] == nil
	})
	r.apply(o.DeepCopy())
	return r.live(o)
}

func deployment() *unstructured.Unstructured {
	labels := map[string]any{"app": "hb-owned"}
	o := object(deployments, "hb-owned", map[string]any{"spec": map[string]any{
		"replicas": int64(0), "selector": map[string]any{"matchLabels": labels},
		"template": map[string]any{
			"metadata": map[string]any{"labels": labels},
			"spec":     map[string]any{"containers": []any{map[string]any{"name": "main", "image": "holdfast.test/pause:1", "args": []any{"a"}}}},
		},
	}})
	o.SetNamespace(namespace)
	return o
}

func TestApply_ForeignEntriesAreRemovedAndAllowedOnesStay(t *testing.T) {
	r := newRealRig(t)
	live := r.edited(deployment(), "kubectl-edit", `{"metadata":{"annotations":{"theirs":"yes"}},"spec":{"paused":true,"template":{
		"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"now","sidecar":"inject"}},
		"spec":{"hostIPC":true,"containers":[{"name":"main","image":"holdfast.test/pause:1","args":["a"],"env":[{"name":"LD_PRELOAD","value":"x"}]},{"name":"more","image":"busybox:1"}]}}}}`)
	spec := live.Object["spec"].(map[string]any)
	template := spec["template"].(map[string]any)
	pod := template["spec"].(map[string]any)
	containers := pod["containers"].([]any)
	if spec["paused"] != nil || pod["hostIPC"] != nil || len(containers) != 1 || containers[0].(map[string]any)["env"] != nil {
		t.Errorf("what was added is still there: %v", spec)
	}
	annotations := template["metadata"].(map[string]any)["annotations"].(map[string]any)
	if annotations["sidecar"] != nil || annotations["kubectl.kubernetes.io/restartedAt"] != "now" {
		t.Errorf("the template has the annotations %v", annotations)
	}
	if live.GetAnnotations()["theirs"] != "yes" {
		t.Error("a foreign annotation of the object itself was removed")
	}
}

func TestApply_FieldThatIsNoLongerDesiredIsRemoved(t *testing.T) {
	r := newRealRig(t)
	o := configMap("hb-owned", "1")
	o.Object["data"].(map[string]any)["more"] = "2"
	r.apply(o)
	r.apply(configMap("hb-owned", "1"))
	if data := r.live(o).Object["data"].(map[string]any); data["more"] != nil || data["key"] != "1" {
		t.Errorf("it has %v", data)
	}
}

func TestApply_ImmutableObjectIsRecreatedUnlessItWouldBeRefused(t *testing.T) {
	r := newRealRig(t)
	first := class("hb-owned", "one.example")
	r.apply(first)
	uid := r.live(first).GetUID()
	r.apply(class("hb-owned", "two.example"))
	live := r.live(first)
	if live.GetUID() == uid || live.Object["provisioner"] != "two.example" {
		t.Errorf("it is %v", live)
	}
	bad := class("hb-owned", "three.example")
	bad.Object["reclaimPolicy"] = "Burn"
	out := r.set.Apply(t.Context(), list(bad))
	if out.Err() == nil || !strings.Contains(out.Err().Error(), "Burn") {
		t.Errorf("got %v", out.Err())
	}
	if again := r.live(first); again.GetUID() != live.GetUID() {
		t.Error("it was deleted for something that cannot be made")
	}
	role := func(name string) *unstructured.Unstructured {
		o := object(bindings, "hb-owned", map[string]any{
			"roleRef":  map[string]any{"apiGroup": bindings.Group, "kind": "Role", "name": name},
			"subjects": []any{map[string]any{"kind": "User", "name": "stranger", "apiGroup": bindings.Group}},
		})
		o.SetNamespace(namespace)
		return o
	}
	r.apply(role("one"))
	r.apply(role("two"))
	if live := r.live(role("two")); live.Object["roleRef"].(map[string]any)["name"] != "two" {
		t.Errorf("the binding is %v", live.Object["roleRef"])
	}
}

func TestApply_ObjectWithoutItsLabelIsRecognizedByItsFields(t *testing.T) {
	r := newRealRig(t)
	live := r.edited(class("hb-owned", "one.example"), "kubectl-edit", `{"metadata":{"labels":null},"allowVolumeExpansion":true}`)
	if live.GetLabels()[ManagedByLabel] != FieldManager || live.Object["allowVolumeExpansion"] != nil {
		t.Errorf("it is %v", live)
	}
}
