package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-storage/holdfast/agent"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend/backendtest"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/operator/nodejob"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
)

type spoiling struct {
	resource, kind, spec, field, said string
	mute                              bool // only an event can report it
}

// spoilt has for each kind specs that a release took which did not look at one field. Of a value of another type than the
// schema has, the API server takes no write at all, not even of the status.
var spoilt = []spoiling{
	{"storageclusters", "StorageCluster", `{"resources":{"limits":{"cpu":"1e1.5"}}}`, "spec.resources.limits", `spec.resources.limits: {"cpu":"1e1.5"}`, false},
	{"storageclusters", "StorageCluster", `{"pools":[{"name":"a","trashRetention":7}]}`, "spec.pools.trashRetention", "spec.pools[0].trashRetention: 7", true},
	{"storageupgrades", "StorageUpgrade", `{"version":"v2","nodeTimeout":["1d"]}`, "spec.nodeTimeout", `spec.nodeTimeout: ["1d"]`, true},
	{"nodejobs", "NodeJob", `{"image":"i","backoffLimit":"often"}`, "spec.backoffLimit", `spec.backoffLimit: "often"`, true},
	{"nfsservers", "NFSServer", `{"storage":{"size":"1e1.5"}}`, "spec.storage.size", `spec.storage.size: "1e1.5"`, false},
	{"storagenodes", "StorageNode", `{"restore":[{"name":"a","requestedAt":"2026-11-24T03:00:00Z"}]}`, "spec.restore.requestedAt", `spec.restore[0].requestedAt: "2026-11-24T03:00:00Z"`, false},
	{"volumes", "Volume", `{"name":"test-spoilt","node":"test-spoilt-node","deletion":{"uid":"u","requestedBy":"c","requestedAt":"2026-11-24T03:00:00Z"}}`, "spec.deletion.requestedAt", `spec.deletion.requestedAt: "2026-11-24T03:00:00Z"`, false},
	{"volumes", "Volume", `{"name":"test-spoilt","node":"test-spoilt-node","inodes":"many"}`, "spec.inodes", `spec.inodes: "many"`, true},
	{"snapshots", "Snapshot", `{"name":"test-spoilt","node":"test-spoilt-node","sourceRef":{"kind":"Volume","name":"v"},"deletion":{"uid":"u","requestedBy":"c","requestedAt":"2026-11-24T03:00:00Z"}}`, "spec.deletion.requestedAt", `spec.deletion.requestedAt: "2026-11-24T03:00:00Z"`, false},
}

// spoil makes the object of a kind that cannot be read, until the test ends or end is called.
func spoil(t *testing.T, resource, kind, spec, field string) (made *unstructured.Unstructured, end func()) {
	t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"kind": kind}}
	var tree map[string]any
	if err := json.Unmarshal([]byte(spec), &tree); err != nil {
		t.Fatal(err)
	}
	o.Object["spec"] = tree
	o.SetName("test-spoilt")
	if kind == "NFSServer" {
		o.SetNamespace(metav1.NamespaceDefault)
	}
	made = realapi.PutPast(t, realapi.Config(t), resource, o, field)
	end = func() {
		err := client.HoldfastV1beta1().RESTClient().Delete().NamespaceIfScoped(o.GetNamespace(), o.GetNamespace() != "").Resource(resource).Name(o.GetName()).Do(context.Background()).Error()
		if err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("%s: %v", kind, err)
		}
	}
	t.Cleanup(end)
	return made, end
}

// stored is an object as the API server has it.
func stored(t *testing.T, resource, namespace string) map[string]any {
	t.Helper()
	data, err := client.HoldfastV1beta1().RESTClient().Get().NamespaceIfScoped(namespace, namespace != "").Resource(resource).Name("test-spoilt").Do(t.Context()).Raw()
	if err != nil {
		t.Fatal(err)
	}
	var o map[string]any
	if err := json.Unmarshal(data, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestUnreadable_ObjectIsListedAndReportedWithUnchangedSpec(t *testing.T) {
	needServer(t)
	for _, c := range spoilt {
		made, end := spoil(t, c.resource, c.kind, c.spec, c.field)
		defer end()
		var reporter kube.UnreadableReporter
		o := find(t, c.kind)
		if o.Unreadable() == nil || !strings.Contains(o.Unreadable().Error(), c.said) {
			t.Errorf("%s: it is read as %+v, %v", c.kind, o, o.Unreadable())
			continue
		}
		written, err := reporter.Report(t.Context(), client, o, "test")
		if err != nil || written == nil {
			t.Errorf("%s: %v", c.kind, err)
			continue
		}
		if again, err := reporter.Report(t.Context(), client, written, "test"); again != nil || err != nil {
			t.Errorf("%s: it is reported once more: %v, %v", c.kind, again, err)
		}
		now := stored(t, c.resource, made.GetNamespace())
		if !equality.Semantic.DeepEqual(now["spec"], tree(t, c.spec)) {
			t.Errorf("%s: its spec became %v", c.kind, now["spec"])
		}
		// Before 1.33 the API server looks at the rules of a spec also where only the status is written.
		if text, _ := json.Marshal(now["status"]); unreadyFor(now, v1beta1.ReasonUnreadable) == c.mute && (c.mute || !olderThan(t, 33)) {
			t.Errorf("%s with %s: its status is %s", c.kind, c.said, text)
		}
		end()
	}
}

// unreadyFor says whether the condition Ready of an object is false for that reason.
func unreadyFor(o map[string]any, reason string) bool {
	conditions, _, _ := unstructured.NestedSlice(o, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		is, _ := c.(map[string]any)
		return is["type"] == v1beta1.ReadyCondition && is["status"] == string(metav1.ConditionFalse) && is["reason"] == reason
	})
}

// olderThan says whether the API server is older than 1.MINOR.
func olderThan(t *testing.T, minor int) bool {
	t.Helper()
	is, err := client.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	has, err := strconv.Atoi(is.Minor)
	if err != nil {
		t.Fatal(err)
	}
	return has < minor
}

func tree(t *testing.T, text string) (v map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// find lists a kind, as every reader does, and returns the object that cannot be read.
func find(t *testing.T, kind string) v1beta1.Object {
	t.Helper()
	all := metav1.ListOptions{}
	kinds := client.HoldfastV1beta1()
	var list runtime.Object
	var err error
	switch kind {
	case "StorageCluster":
		list, err = kinds.StorageClusters().List(t.Context(), all)
	case "StorageUpgrade":
		list, err = kinds.StorageUpgrades().List(t.Context(), all)
	case "NodeJob":
		list, err = kinds.NodeJobs().List(t.Context(), all)
	case "NFSServer":
		list, err = kinds.NFSServers(metav1.NamespaceAll).List(t.Context(), all)
	case "StorageNode":
		list, err = kinds.StorageNodes().List(t.Context(), all)
	case "Volume":
		list, err = kinds.Volumes().List(t.Context(), all)
	case "Snapshot":
		list, err = kinds.Snapshots().List(t.Context(), all)
	}
	if err != nil {
		t.Fatalf("%s: the list fails: %v", kind, err)
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range items {
		if o := o.(v1beta1.Object); o.GetName() == "test-spoilt" {
			return o
		}
	}
	t.Fatalf("%s: it is not in the list", kind)
	return nil
}

func TestUnreadable_OneOfEachKindBlocksNoOther(t *testing.T) {
	needServer(t)
	for i, c := range spoilt {
		if !slices.ContainsFunc(spoilt[:i], func(before spoiling) bool { return before.kind == c.kind }) { // one of each
			spoil(t, c.resource, c.kind, c.spec, c.field)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	kinds := client.HoldfastV1beta1()
	v := &v1beta1.Volume{
		ObjectMeta: metav1.ObjectMeta{Name: "test-good", Finalizers: []string{v1beta1.AgentFinalizer}},
		Spec:       v1beta1.VolumeSpec{Name: "test-good", Node: "test-spoilt-node", Size: v1beta1.VolumeSize{Required: resource.NewQuantity(16<<20, resource.BinarySI)}},
	}
	if _, err := kinds.Volumes().Create(ctx, v, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// When the agent has ended, which would write the object again; with it goes who takes its finalizer off.
	t.Cleanup(func() {
		free := []byte(`{"metadata":{"finalizers":null}}`)
		_, err := kinds.Volumes().Patch(context.Background(), "test-good", types.MergePatchType, free, metav1.PatchOptions{})
		ended(t, err)
		ended(t, kinds.Volumes().Delete(context.Background(), "test-good", metav1.DeleteOptions{}))
	})
	reconcile(t)
	job := &v1beta1.NodeJob{ObjectMeta: metav1.ObjectMeta{Name: "test-good"}, Spec: v1beta1.NodeJobSpec{
		Image: "i", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"no": "where"}},
	}}
	if _, err := kinds.NodeJobs().Create(ctx, job, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kinds.NodeJobs().Delete(context.Background(), "test-good", metav1.DeleteOptions{}) })
	if err := realapi.Until(ctx, func() bool {
		v, err := kinds.Volumes().Get(ctx, "test-good", metav1.GetOptions{})
		j, failed := kinds.NodeJobs().Get(ctx, "test-good", metav1.GetOptions{})
		return err == nil && failed == nil && v.Status.Phase == v1beta1.PhaseReady && j.Status.Phase == v1beta1.JobFailed
	}); err != nil {
		t.Error("the others are not reconciled")
	}
	for _, kind := range []string{"Volume", "Snapshot"} {
		if err := realapi.Until(ctx, func() bool { return strings.Contains(statusOf(t, find(t, kind)), v1beta1.ReasonUnreadable) }); err != nil {
			t.Errorf("%s: neither status nor event reports that it cannot be read: %s", kind, statusOf(t, find(t, kind)))
		}
	}
}

func statusOf(t *testing.T, o v1beta1.Object) string {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	_, status, _ := strings.Cut(string(text), `"status"`)
	return status
}

// reconcile runs an agent and the controller of jobs until the test ends.
func reconcile(t *testing.T) {
	t.Helper()
	theirs := kubernetes.NewForConfigOrDie(realapi.Config(t))
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	a, err := agent.New(agent.Config{
		Node: "test-spoilt-node", Version: "1", Backend: backendtest.NewMemory(), Pools: []agent.Pool{{Name: "memory", Path: "/memory", Engine: "image"}},
		Client: client, Kubernetes: theirs, Log: log, Namespace: realapi.Namespace, SurveyEvery: 100 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	watches := kube.NewWatches(ctx, client, theirs, realapi.Namespace)
	jobs, err := nodejob.New(nodejob.Config{Client: client, Kubernetes: theirs, Watches: watches, Namespace: realapi.Namespace, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	watches.Start()
	ended := make(chan error, 2)
	go func() { ended <- a.Run(ctx) }()
	go func() { ended <- jobs.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		for range cap(ended) {
			if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		_ = client.HoldfastV1beta1().StorageNodes().Delete(context.Background(), "test-spoilt-node", metav1.DeleteOptions{})
	})
}
