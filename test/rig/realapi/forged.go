package realapi

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// What controllers go by: none of it is an agent's to write or to remove.
var (
	metadata = map[string][]string{
		"labels": {
			v1beta1.AdoptedLabel, v1beta1.CopyLabel, v1beta1.CopyUIDLabel, v1beta1.FencedLabel, v1beta1.CephPoolLabel, "holdfast.dev/nfs-server", "holdfast.dev/node-job",
			"app.kubernetes.io/name", "app.kubernetes.io/managed-by", "app.kubernetes.io/part-of", "example.com/any",
		},
		"annotations": {
			"holdfast.dev/bound", v1beta1.AttachedAnnotation, v1beta1.AttachedSinceAnnotation, "holdfast.dev/fenced-at", "holdfast.dev/node", v1beta1.AllowHidingAnnotation,
			v1beta1.PausedByAnnotation, v1beta1.ManifestAnnotation, v1beta1.UpgradedAnnotation, v1beta1.ReplicasAnnotation, v1beta1.NFSServerAnnotation, v1beta1.NFSVolumeAnnotation, v1beta1.OnDeleteAnnotation, "example.com/any",
		},
	}
	finalizers = []string{"holdfast.dev/renew-claim", v1beta1.OperatorFinalizer, "kubernetes.io/pv-protection", "foregroundDeletion"}
	owner      = metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "a", UID: "1"}
)

// Keys are the labels, annotations and finalizers of that.
func Keys() []string { return slices.Concat(metadata["labels"], metadata["annotations"], finalizers) }

// mark gives an object of an agent all of that metadata.
func mark(o metav1.Object) {
	all := map[string]map[string]string{}
	for field, keys := range metadata {
		all[field] = map[string]string{}
		for _, key := range keys {
			all[field][key] = "true"
		}
	}
	o.SetLabels(all["labels"])
	o.SetAnnotations(all["annotations"])
	o.SetFinalizers(append([]string{v1beta1.AgentFinalizer}, finalizers...))
	o.SetOwnerReferences([]metav1.OwnerReference{owner})
}

// Unmarked makes a Volume and a Snapshot of an agent with all of that metadata, gives it to the StorageNode of the agent too, and
// returns the writes that remove it.
func Unmarked(t testing.TB, ours holdfast.Interface, id, node string) (all []Attempt) {
	t.Helper()
	kinds, background := ours.HoldfastV1beta1(), context.Background()
	nodes, volumes, snapshots := kinds.StorageNodes(), kinds.Volumes(), kinds.Snapshots()
	t.Cleanup(func() {
		free := []byte(`{"metadata":{"finalizers":null}}`)
		_, _ = nodes.Patch(background, node, types.MergePatchType, free, metav1.PatchOptions{})
		_, _ = volumes.Patch(background, id, types.MergePatchType, free, metav1.PatchOptions{})
		_, _ = snapshots.Patch(background, id, types.MergePatchType, free, metav1.PatchOptions{})
		_ = volumes.Delete(background, id, metav1.DeleteOptions{})
		_ = snapshots.Delete(background, id, metav1.DeleteOptions{})
	})
	v := &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: id}, Spec: v1beta1.VolumeSpec{Name: id, Node: node, Shared: v1beta1.SiteOf(node).Kind == v1beta1.SiteNFSServer}}
	s := &v1beta1.Snapshot{ObjectMeta: metav1.ObjectMeta{Name: id}, Spec: v1beta1.SnapshotSpec{Name: id, Node: node, SourceRef: v1beta1.FromVolume(id)}}
	mark(v)
	mark(s)
	marks := check.Got(json.Marshal(map[string]any{"metadata": map[string]any{
		"labels": v.Labels, "annotations": v.Annotations, "finalizers": v.Finalizers, "ownerReferences": v.OwnerReferences,
	}}))(t)
	check.Got(nodes.Patch(t.Context(), node, types.MergePatchType, marks, metav1.PatchOptions{}))(t)
	check.Got(volumes.Create(t.Context(), v, metav1.CreateOptions{}))(t)
	check.Got(snapshots.Create(t.Context(), s, metav1.CreateOptions{}))(t)
	for what, name := range map[string]string{"volumes": id, "snapshots": id, "storagenodes": node} {
		patch := patchOf(what, name)
		for field, keys := range metadata {
			for _, key := range keys {
				all = append(all, patch(`{"metadata":{%q:{%q:null}}}`, field, key))
			}
			all = append(all, patch(`{"metadata":{%q:null}}`, field))
		}
		all = append(all, patch(`{"metadata":{"finalizers":[%q]}}`, v1beta1.AgentFinalizer), patch(`{"metadata":{"finalizers":null}}`), patch(`{"metadata":{"ownerReferences":null}}`))
	}
	return all
}

func patchOf(what, name string) func(format string, args ...any) Attempt {
	return func(format string, args ...any) Attempt {
		return Attempt{Verb: "patch", What: "holdfast.dev/v1beta1/" + what, Name: name, Body: fmt.Sprintf(format, args...)}
	}
}

// Forged are writes of what controllers go by on a Volume, a Snapshot and a StorageNode that an agent may write. Those that the
// policy for its account leaves to another policy are in Reserved.
func Forged(volume, snapshot, node string) (all []Attempt) {
	for what, name := range map[string]string{"volumes": volume, "snapshots": snapshot, "storagenodes": node} {
		patch := patchOf(what, name)
		for field, keys := range metadata {
			for _, key := range keys {
				all = append(all, patch(`{"metadata":{%q:{%q:"forged"}}}`, field, key))
			}
		}
		for _, f := range finalizers {
			all = append(all, patch(`{"metadata":{"finalizers":[%q,%q]}}`, v1beta1.AgentFinalizer, f))
		}
		all = append(all, patch(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"a","uid":"1"}]}}`))
	}
	for _, of := range []string{
		`"labels":{"example.com/any":"a"}`, `"annotations":{"holdfast.dev/allow-hiding":"true"}`, `"finalizers":["kubernetes.io/pv-protection"]`,
		`"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"a","uid":"1"}]`,
	} {
		body := `{"apiVersion":"holdfast.dev/v1beta1","kind":"StorageNode","metadata":{` + of + `}}`
		all = append(all, Attempt{Verb: "create", What: "holdfast.dev/v1beta1/storagenodes", Name: node, Body: body})
	}
	all = append(all, patchOf("volumes", volume)(`{"spec":{"size":{"required":"1Ti"}}}`))
	for kind, of := range map[string][2]string{"Volume": {"volumes", ""}, "Snapshot": {"snapshots", `,"sourceRef":{"kind":"Volume","name":"a"}`}} {
		const body = `{"apiVersion":"holdfast.dev/v1beta1","kind":%q,"metadata":{"labels":{%q:"true"%s}%s},"spec":{"name":"new","node":%q%s}}`
		for _, more := range [][2]string{
			{`,"holdfast.dev/copy-for":"a"`, ""},
			{"", `,"annotations":{"holdfast.dev/bound":"a"}`},
			{"", `,"finalizers":["holdfast.dev/renew-claim"]`},
			{"", `,"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"a","uid":"1"}]`},
		} {
			all = append(all, Attempt{Verb: "create", What: "holdfast.dev/v1beta1/" + of[0], Name: "new", Body: fmt.Sprintf(body, kind, v1beta1.AdoptedLabel, more[0], more[1], node, of[1])})
		}
	}
	return all
}

// Reserved are requests of the controller alone about what an agent may write, by the policy that refuses them to all others.
func Reserved(volume, node string) map[string][]Attempt {
	v, status, n := patchOf("volumes", volume), patchOf("volumes/status", volume), patchOf("storagenodes", node)
	const create = `{"apiVersion":"holdfast.dev/v1beta1","kind":"Volume","metadata":{"labels":{%q:"true"}},"spec":{"name":"new","node":%q,"populatedBy":"Pod","sourceRef":{"kind":"Volume","name":"a"}}}`
	const at = "2026-11-24T00:00:00.000000Z"
	return map[string][]Attempt{
		"holdfast-population": {
			v(`{"metadata":{"annotations":{"holdfast.dev/renew-claim":"{}"}}}`),
			{Verb: "create", What: "holdfast.dev/v1beta1/volumes", Name: "new", Body: fmt.Sprintf(create, v1beta1.AdoptedLabel, node)},
			status(`{"status":{"copy":{"phase":"Complete"}}}`),
			status(`{"status":{"conditions":[{"type":"Populated","status":"True","reason":"a","message":"","lastTransitionTime":"2026-11-24T00:00:00Z"}]}}`),
		},
		"holdfast-node-requests": {
			n(`{"spec":{"fence":{"reason":"NodeGone","requestedAt":%q}}}`, at),
			n(`{"spec":{"blocklist":[{"node":"b","addresses":["10.0.0.5:0/1"],"requestedAt":%q}]}}`, at),
		},
	}
}

// Requested are requests that only the controller, and an NFS server for its own, may make, by the policy that refuses them.
func Requested(volume, snapshot, node string) map[string][]Attempt {
	n := patchOf("storagenodes", node)
	const (
		by       = `"requestedBy":"x","requestedAt":"2026-11-24T00:00:00.000000Z"`
		deletion = `{"spec":{"deletion":{"uid":"u",` + by + `}}}`
	)
	return map[string][]Attempt{
		"holdfast-deletion": {patchOf("volumes", volume)(deletion), patchOf("snapshots", snapshot)(deletion)},
		"holdfast-node-requests": {
			n(`{"spec":{"discard":[{"kind":"Volume","name":"a","uid":"1",` + by + `}]}}`), n(`{"spec":{"restore":[{"name":"a"}]}}`), n(`{"spec":{"replacePools":[{"name":"a","id":"1"}]}}`),
		},
	}
}
