package api_test

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/test/rig/check"
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

// ofSpoilt is a request for the object that cannot be read.
func ofSpoilt(r *rest.Request, resource, namespace string) *rest.Request {
	return r.NamespaceIfScoped(namespace, namespace != "").Resource(resource).Name("test-spoilt")
}

// spoil makes the object of a kind that cannot be read, until the test ends or end is called.
func spoil(t *testing.T, resource, kind, spec, field string) (made *unstructured.Unstructured, end func()) {
	t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"kind": kind, "spec": tree(t, spec)}}
	o.SetName("test-spoilt")
	if kind == "NFSServer" {
		o.SetNamespace(metav1.NamespaceDefault)
	}
	made = realapi.PutPast(t, realapi.Config(t), resource, o, field)
	end = func() {
		err := ofSpoilt(client.HoldfastV1beta1().RESTClient().Delete(), resource, o.GetNamespace()).Do(context.Background()).Error()
		if err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("%s: %v", kind, err)
		}
	}
	t.Cleanup(end)
	return made, end
}

func TestUnreadable_ObjectIsListedAndReportedWithUnchangedSpec(t *testing.T) {
	needServer(t)
	minor := check.Got(strconv.Atoi(check.Got(client.Discovery().ServerVersion())(t).Minor))(t)
	for _, c := range spoilt {
		made, end := spoil(t, c.resource, c.kind, c.spec, c.field)
		defer end()
		var reporter kube.UnreadableReporter
		o := find(t, c.resource)
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
		stored := ofSpoilt(client.HoldfastV1beta1().RESTClient().Get(), c.resource, made.GetNamespace())
		now := tree(t, string(check.Got(stored.DoRaw(t.Context()))(t)))
		if !equality.Semantic.DeepEqual(now["spec"], tree(t, c.spec)) {
			t.Errorf("%s: its spec became %v", c.kind, now["spec"])
		}
		// Before 1.33 the API server looks at the rules of a spec also where only the status is written.
		if text, _ := json.Marshal(now["status"]); unreadyFor(now, v1beta1.ReasonUnreadable) == c.mute && (c.mute || minor >= 33) {
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

func tree(t *testing.T, text string) (v map[string]any) {
	t.Helper()
	check.OK(t, json.Unmarshal([]byte(text), &v))
	return v
}

// find lists a kind in all namespaces, as every reader does, and returns the object that cannot be read.
func find(t *testing.T, resource string) v1beta1.Object {
	t.Helper()
	list := check.Got(client.HoldfastV1beta1().RESTClient().Get().Resource(resource).Do(t.Context()).Get())(t)
	for _, o := range check.Got(meta.ExtractList(list))(t) {
		if o := o.(v1beta1.Object); o.GetName() == "test-spoilt" {
			return o
		}
	}
	t.Fatalf("%s: it is not in the list", resource)
	return nil
}
