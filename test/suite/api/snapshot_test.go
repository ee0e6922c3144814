package api_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
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

func TestSnapshot_ThatBreaksARuleIsRefused(t *testing.T) {
	needServer(t)
	for _, test := range []struct {
		field  string
		change func(*v1beta1.Snapshot)
	}{
		{"metadata.name", func(s *v1beta1.Snapshot) { s.Name = "a.b" }},
		{"spec.name", func(s *v1beta1.Snapshot) { s.Spec.Name = "" }},
		{"spec.name", func(s *v1beta1.Snapshot) { s.Spec.Name = strings.Repeat("ä", 2049) }},
		{"spec.sourceRef.name", func(s *v1beta1.Snapshot) { s.Spec.SourceRef.Name, s.Spec.Group = "", nil }},
		{"spec.sourceRef.kind", func(s *v1beta1.Snapshot) { s.Spec.SourceRef.Kind = v1beta1.SourceSnapshot }},
		{"spec.sourceRef.name", func(s *v1beta1.Snapshot) { s.Spec.SourceRef.Name, s.Spec.Group = "../a", nil }},
		{"spec.node", func(s *v1beta1.Snapshot) { s.Spec.Node = "" }},
		{"spec.node", func(s *v1beta1.Snapshot) { s.Spec.Node = strings.Repeat("n", 254) }},
		{"spec.group.name", func(s *v1beta1.Snapshot) { s.Spec.Group.Name = "" }},
		{"spec.group.name", func(s *v1beta1.Snapshot) { s.Spec.Group.Name = strings.Repeat("ä", 2049) }},
		{"spec.group.volumes", func(s *v1beta1.Snapshot) { s.Spec.Group.Volumes = []string{"b", "c"} }},
		{"spec.group.volumes[1]", func(s *v1beta1.Snapshot) { s.Spec.Group.Volumes = []string{"a", "B"} }},
		{"spec.group.volumes[1]", func(s *v1beta1.Snapshot) { s.Spec.Group.Volumes = []string{"a", "a"} }},
		{"spec.group.volumes", func(s *v1beta1.Snapshot) { s.Spec.Group.Volumes = []string{} }},
	} {
		t.Run(test.field, func(t *testing.T) { mustRefuse(t, createSnapshot(t, test.change), test.field) })
	}
}

func TestSnapshot_NeedsNoGroup(t *testing.T) {
	needServer(t)
	if err := createSnapshot(t, func(s *v1beta1.Snapshot) { s.Spec.Group = nil }); err != nil {
		t.Error(err)
	}
}

func TestGroup_MayHaveManyMembers(t *testing.T) {
	needServer(t)
	for members, allowed := range map[int]bool{256: true, 257: false} {
		err := createSnapshot(t, func(s *v1beta1.Snapshot) {
			s.Spec.Group.Volumes = []string{"a"}
			for i := range members - 1 {
				s.Spec.Group.Volumes = append(s.Spec.Group.Volumes, fmt.Sprintf("%060d", i))
			}
		})
		if !allowed {
			mustRefuse(t, err, "spec.group.volumes")
		} else if err != nil {
			t.Errorf("%d: %v", members, err)
		}
	}
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
