package realapi

import (
	"fmt"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// What controllers go by: none of it is an agent's to write.
var (
	metadata = map[string][]string{
		"labels": {
			v1beta1.AdoptedLabel, v1beta1.CopyLabel, v1beta1.CopyUIDLabel, v1beta1.FencedLabel, v1beta1.CephPoolLabel, "holdfast.dev/nfs-server", "holdfast.dev/node-job",
			"app.kubernetes.io/name", "app.kubernetes.io/managed-by", "app.kubernetes.io/part-of", "example.com/any",
		},
		"annotations": {
			"holdfast.dev/bound", v1beta1.AttachedAnnotation, "holdfast.dev/fenced-at", "holdfast.dev/node", v1beta1.AllowHidingAnnotation,
			v1beta1.PausedByAnnotation, v1beta1.ReplicasAnnotation, v1beta1.NFSServerAnnotation, v1beta1.NFSVolumeAnnotation, v1beta1.OnDeleteAnnotation, "example.com/any",
		},
	}
	finalizers = []string{"holdfast.dev/renew-claim", v1beta1.OperatorFinalizer, "kubernetes.io/pv-protection", "foregroundDeletion"}
)

// Forged are, but for the annotation holdfast.dev/renew-claim, which only the controller may write, writes of what controllers go by on a Volume, a Snapshot and a StorageNode that an agent may write.
func Forged(volume, snapshot, node string) (all []Attempt) {
	for what, name := range map[string]string{"volumes": volume, "snapshots": snapshot, "storagenodes": node} {
		patch := func(format string, args ...any) {
			all = append(all, Attempt{Verb: "patch", What: "holdfast.dev/v1beta1/" + what, Name: name, Body: `{"metadata":` + fmt.Sprintf(format, args...) + `}`})
		}
		for field, keys := range metadata {
			for _, key := range keys {
				patch(`{%q:{%q:"forged"}}`, field, key)
			}
		}
		for _, f := range finalizers {
			patch(`{"finalizers":[%q,%q]}`, v1beta1.AgentFinalizer, f)
		}
		patch(`{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"a","uid":"1"}]}`)
	}
	all = append(all, Attempt{Verb: "patch", What: "holdfast.dev/v1beta1/volumes", Name: volume, Body: `{"spec":{"size":{"required":"1Ti"}}}`})
	const body = `{"apiVersion":"holdfast.dev/v1beta1","kind":"Volume","metadata":{"labels":{%q:"true"%s}%s},"spec":{"name":"new","node":%q}}`
	for _, more := range [][2]string{
		{`,"holdfast.dev/copy-for":"a"`, ""},
		{"", `,"annotations":{"holdfast.dev/bound":"a"}`},
		{"", `,"finalizers":["holdfast.dev/renew-claim"]`},
		{"", `,"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"a","uid":"1"}]`},
	} {
		all = append(all, Attempt{Verb: "create", What: "holdfast.dev/v1beta1/volumes", Name: "new", Body: fmt.Sprintf(body, v1beta1.AdoptedLabel, more[0], more[1], node)})
	}
	return all
}
