package bootstrap

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/deploy"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

type fields = map[string]any

// gone is a rule that the older release had and this one has not.
const gone = "!has(self.spec) || !has(self.spec.debug) || !self.spec.debug"

// olderCluster is a cluster with the kinds of an older release, which lacks fields, columns and rules of this one and has
// a rule of its own.
type olderCluster struct {
	*testing.T
	client dynamic.Interface
}

func newOlderCluster(t *testing.T) *olderCluster {
	t.Helper()
	c := &olderCluster{t, dynamic.NewForConfigOrDie(realapi.Config(t))}
	t.Cleanup(func() { c.define(context.WithoutCancel(t.Context())) })
	all := deploy.Definitions()
	for _, d := range all {
		older := d.DeepCopy()
		for _, version := range older.Object["spec"].(fields)["versions"].([]any) {
			version := version.(fields)
			delete(version, "additionalPrinterColumns")
			schema := version["schema"].(fields)["openAPIV3Schema"].(fields)
			forgetRules(schema)
			if d.GetName() == "storageclusters.holdfast.dev" {
				schema["x-kubernetes-validations"] = []any{fields{"rule": gone, "message": "not yet"}}
				csi := schema["properties"].(fields)["spec"].(fields)["properties"].(fields)["csi"].(fields)
				delete(csi["properties"].(fields), "maxVolumesPerNode")
				csi["properties"].(fields)["scheduler"] = fields{"type": "string"}
			}
		}
		c.replace(older)
	}
	return c
}

// forgetRules takes all rules out of a schema.
func forgetRules(schema fields) {
	delete(schema, "x-kubernetes-validations")
	for _, value := range schema {
		switch value := value.(type) {
		case fields:
			forgetRules(value)
		case []any:
			for _, element := range value {
				if inner, ok := element.(fields); ok {
					forgetRules(inner)
				}
			}
		}
	}
}

// replace installs a definition as kubectl create and replace do.
func (c *olderCluster) replace(d *unstructured.Unstructured) {
	c.Helper()
	kinds := c.client.Resource(kube.Definitions)
	was := check.Got(kinds.Get(c.Context(), d.GetName(), metav1.GetOptions{}))(c)
	d.SetResourceVersion(was.GetResourceVersion())
	check.Got(kinds.Update(c.Context(), d, metav1.UpdateOptions{FieldManager: "kubectl-replace"}))(c)
}

func (c *olderCluster) define(ctx context.Context) {
	c.Helper()
	check.Report(c, Define(ctx, c.client, slog.New(slog.DiscardHandler)))
}

func (c *olderCluster) of(resource string) dynamic.ResourceInterface {
	return c.client.Resource(v1beta1.SchemeGroupVersion.WithResource(resource))
}

// make makes an object that stays until the test ends.
func (c *olderCluster) make(resource, kind, name string, spec, status fields) {
	c.Helper()
	o := &unstructured.Unstructured{Object: fields{
		"apiVersion": "holdfast.dev/v1beta1", "kind": kind, "metadata": fields{"name": name, "annotations": fields{"mine": "kept"}}, "spec": spec,
	}}
	var made *unstructured.Unstructured
	wait.Until(c, kind+" "+name, func() (done bool) {
		var err error
		made, err = c.of(resource).Create(c.Context(), o, metav1.CreateOptions{})
		if err != nil && !apierrors.IsNotFound(err) { // for a moment a kind that changes is not served
			c.Fatal(err)
		}
		return err == nil
	})
	c.Cleanup(func() {
		if err := c.of(resource).Delete(context.WithoutCancel(c.Context()), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			c.Error(err)
		}
	})
	if status != nil {
		made.Object["status"] = status
		check.Got(c.of(resource).UpdateStatus(c.Context(), made, metav1.UpdateOptions{}))(c)
	}
}

// objects are all of all kinds, as the API server has them.
func (c *olderCluster) objects() map[string]string {
	c.Helper()
	all := map[string]string{}
	for _, resource := range []string{"storageclusters", "storageupgrades", "nodejobs", "volumes", "snapshots", "storagenodes"} {
		list := check.Got(c.of(resource).List(c.Context(), metav1.ListOptions{}))(c)
		for _, o := range list.Items {
			text := check.Got(json.Marshal(o.Object))(c)
			all[resource+" "+o.GetName()] = string(text)
		}
	}
	return all
}

// limit says what becomes of a field that only this release has.
func (c *olderCluster) limit() (int64, bool) {
	c.Helper()
	patch := []byte(`{"spec":{"csi":{"maxVolumesPerNode":7}}}`)
	is := check.Got(c.of("storageclusters").Patch(c.Context(), "older", types.MergePatchType, patch, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}))(c)
	n, kept, _ := unstructured.NestedInt64(is.Object, "spec", "csi", "maxVolumesPerNode")
	return n, kept
}

func (c *olderCluster) debug() error {
	_, err := c.of("storageclusters").Patch(c.Context(), "older", types.MergePatchType, []byte(`{"spec":{"debug":true}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

func TestOlder_ObjectsOfAnOlderReleaseAreServedWithTheNewKinds(t *testing.T) {
	c := newOlderCluster(t)
	wait.Until(c, "the older kinds", func() bool {
		older := &unstructured.Unstructured{Object: fields{"apiVersion": "holdfast.dev/v1beta1", "kind": "StorageCluster", "metadata": fields{"name": "older"}, "spec": fields{"csi": fields{"scheduler": "x"}}}}
		is, err := c.of("storageclusters").Create(t.Context(), older, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		_, kept, _ := unstructured.NestedString(is.Object, "spec", "csi", "scheduler")
		return err == nil && kept
	})
	c.make("storageclusters", "StorageCluster", "older", fields{
		"pools": []any{fields{"name": "fast", "path": "/srv/fast", "reserved": "5%"}}, "storageClasses": []any{fields{"name": "fast", "pool": "fast"}},
		"csi": fields{"kubeletDir": "/srv/kubelet", "scheduler": "of the past"}, "controller": fields{"replicas": int64(1)},
	}, fields{"phase": "Running", "readyNodes": int64(1), "volumes": int64(1)})
	c.make("volumes", "Volume", "pvc-1", fields{"name": "pvc-1", "node": "no.such.node", "pool": "fast", "size": fields{"required": "1Gi"}}, fields{"phase": "Ready", "pool": "fast"})
	c.make("snapshots", "Snapshot", "snap-1", fields{"name": "snap-1", "node": "no.such.node", "sourceRef": fields{"kind": "Volume", "name": "pvc-1"}}, fields{"phase": "Ready"})
	c.make("storagenodes", "StorageNode", "no.such.node", fields{}, fields{"version": "v0", "pools": []any{fields{
		"name": "fast", "capacity": "10Gi", "promised": "1Gi", "used": "1Gi", "available": "9Gi", "smallest": "16Mi", "largest": "9Gi", "volumes": int64(1), "snapshots": int64(1),
	}}})
	c.make("nodejobs", "NodeJob", "job", fields{"image": "tool:1"}, fields{"phase": "Completed", "completed": true})
	c.make("storageupgrades", "StorageUpgrade", "to-v0", fields{"version": "v0"}, fields{"phase": "Completed", "completed": true})
	if n, kept := c.limit(); kept {
		t.Fatalf("the older release has the limit %d", n)
	}
	if err := c.debug(); err == nil {
		t.Fatal("the older release lacks its rule")
	}
	before := c.objects()

	c.define(t.Context())
	wait.Until(c, "a field that only this release has", func() bool { n, kept := c.limit(); return kept && n == 7 })
	wait.Until(c, "the end of a rule that this release does not have", func() bool { return c.debug() == nil })

	after := c.objects()
	if !slices.Equal(slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after))) {
		t.Fatalf("there are %v, and there were %v", slices.Sorted(maps.Keys(after)), slices.Sorted(maps.Keys(before)))
	}
	for name, was := range before {
		// What this release does not know is not shown any more, and is not in the way.
		if want := strings.ReplaceAll(was, `,"scheduler":"of the past"`, ""); after[name] != want {
			t.Errorf("%s is\n%s\nand was\n%s", name, after[name], want)
		}
	}
	if _, err := c.of("storageclusters").Patch(t.Context(), "older", types.MergePatchType, []byte(`{"spec":{"debug":true,"paused":true}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("what was left cannot be changed: %v", err)
	}
}

func TestOlder_KindsMatchTheManifestAfterAnyOlderRelease(t *testing.T) {
	c := newOlderCluster(t)
	c.define(t.Context())
	all := deploy.Definitions()
	for _, d := range all {
		is, err := c.client.Resource(kube.Definitions).Get(t.Context(), d.GetName(), metav1.GetOptions{})
		check.OK(t, err)
		// Applied by a newcomer it would be the same: what the API server adds is in both.
		fresh := d.DeepCopy()
		fresh.SetResourceVersion(is.GetResourceVersion())
		would, err := c.client.Resource(kube.Definitions).Update(t.Context(), fresh, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil || would.GetGeneration() != is.GetGeneration() {
			t.Errorf("%s is not what the manifest says: %v", d.GetName(), err)
		}
	}
}
