package api_test

import (
	"maps"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// createSnapshot asks whether the server would take an object, after a change.
func createSnapshot(t *testing.T, change func(*v1beta1.Snapshot)) error {
	t.Helper()
	s := fullSnapshot()
	change(s)
	_, err := client.HoldfastV1beta1().Snapshots().Create(t.Context(), s, metav1.CreateOptions{DryRun: dryRun})
	return err
}

// fixedOfSnapshot has for each field of a spec, none of which ever changes, a value other than fullSnapshot's.
var fixedOfSnapshot = map[string]string{
	"name":      `"other"`,
	"sourceRef": `{"name":"b"}`,
	"node":      `"other.node"`,
	"group":     `{"volumes":["a","b","c"]}`,

	"deletion": `{"reason":"another"}`,
}

func TestSnapshot_ImmutableFieldsNeverChange(t *testing.T) {
	needServer(t)
	full := makeSnapshot(t, fullSnapshot())
	alone := fullSnapshot()
	alone.Spec.Group = nil
	alone = makeSnapshot(t, alone)
	patch := func(s *v1beta1.Snapshot, text string) error {
		_, err := client.HoldfastV1beta1().Snapshots().Patch(t.Context(), s.Name, types.MergePatchType, []byte(text), metav1.PatchOptions{DryRun: dryRun})
		return err
	}
	for field, value := range fixedOfSnapshot {
		mustRefuse(t, patch(full, `{"spec":{"`+field+`":`+value+`}}`), "spec."+field)
	}
	mustRefuse(t, patch(full, `{"spec":{"group":null}}`), "spec.group")
	mustRefuse(t, patch(full, `{"spec":{"deletion":null}}`), "spec.deletion")
	mustRefuse(t, patch(alone, `{"spec":{"group":{"name":"g","volumes":["a"]}}}`), "spec.group")
	if err := patch(full, `{"metadata":{"finalizers":["`+v1beta1.AgentFinalizer+`"]},"spec":{"group":{"volumes":["b","a"]}}}`); err != nil {
		t.Errorf("the members of a group have no order: %v", err)
	}
	if have := jsonNames[v1beta1.SnapshotSpec](); !slices.Equal(slices.Sorted(maps.Keys(fixedOfSnapshot)), have) {
		t.Errorf("the spec has the fields %v, some are not tested here", have)
	}
}
