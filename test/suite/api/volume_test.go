package api_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// createVolume asks whether the server would take an object, after a change.
func createVolume(t *testing.T, change func(*v1beta1.Volume)) error {
	t.Helper()
	v := fullVolume()
	change(v)
	_, err := client.HoldfastV1beta1().Volumes().Create(t.Context(), v, metav1.CreateOptions{DryRun: dryRun})
	return err
}

func TestVolume_IsNamedByItsID(t *testing.T) {
	needServer(t)
	for _, id := range []string{"0", "pvc-8f14e45f", strings.Repeat("a", 63)} {
		if err := createVolume(t, func(v *v1beta1.Volume) { v.Name = id }); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	for _, name := range []string{"a.b", strings.Repeat("a", 64)} { // names that are fit for other objects
		mustRefuse(t, createVolume(t, func(v *v1beta1.Volume) { v.Name = name }), "metadata.name")
	}
}

// patchVolume asks whether the server would take a change of an object.
func patchVolume(t *testing.T, v *v1beta1.Volume, patch string, subresources ...string) error {
	t.Helper()
	_, err := client.HoldfastV1beta1().Volumes().Patch(t.Context(), v.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: dryRun}, subresources...)
	return err
}

// fixed has for each field of a spec that never changes a value other than fullVolume's.
var fixed = map[string]string{
	"name":         `"other"`,
	"claimRef":     `{"name":"other"}`,
	"node":         `"other.node"`,
	"pool":         `"slow"`,
	"mode":         `"Block"`,
	"fsType":       `"xfs"`,
	"provisioning": `"Thin"`,
	"mkfsOptions":  `["-m"]`,
	"inodes":       `17`,
	"labels":       `{"any key":"another value"}`,
	"sourceRef":    `{"kind":"Volume"}`,
	"populatedBy":  `""`,
	"onNodeLoss":   `"Retain"`,
	"deletion":     `{"reason":"another"}`,
}

func TestVolume_ImmutableFieldsNeverChange(t *testing.T) {
	needServer(t)
	full := makeVolume(t, fullVolume())
	least := makeVolume(t, &v1beta1.Volume{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-volume-"},
		Spec:       v1beta1.VolumeSpec{Name: "a", Node: nowhere},
	})
	for field, value := range fixed {
		t.Run(field, func(t *testing.T) {
			mustRefuse(t, patchVolume(t, full, `{"spec":{"`+field+`":`+value+`}}`), "spec."+field)
			if field == "name" || field == "node" {
				return
			}
			without := full
			if field == "sourceRef" { // which spec.populatedBy needs
				plain := fullVolume()
				plain.Spec.PopulatedBy = ""
				without = makeVolume(t, plain)
			}
			mustRefuse(t, patchVolume(t, without, `{"spec":{"`+field+`":null}}`), "spec."+field)
			if field == "deletion" {
				return // it is requested later
			}
			if field == "claimRef" {
				value = `{"namespace":"team","name":"other"}`
			}
			if field == "sourceRef" {
				value = `{"kind":"Volume","name":"a"}`
			}
			if field == "populatedBy" {
				value = `"Pod"`
			}
			mustRefuse(t, patchVolume(t, least, `{"spec":{"`+field+`":`+value+`}}`), "spec."+field)
		})
	}
}

func TestVolume_EveryFieldIsImmutableButItsSize(t *testing.T) {
	want := append(slices.Collect(maps.Keys(fixed)), append(sharedOnly, "size")...)
	if have := jsonNames[v1beta1.VolumeSpec](); !slices.Equal(slices.Sorted(slices.Values(want)), have) {
		t.Errorf("the spec has the fields %v, the test of what is fixed and the size make %v", have, want)
	}
}

func TestVolume_OnlyGrows(t *testing.T) {
	needServer(t)
	v := makeVolume(t, fullVolume()) // 10Gi, at most 20Gi
	for _, size := range []string{
		`{"required":"10240Mi"}`, // the same
		`{"required":"11Gi"}`,
		`{"required":"20Gi"}`,
		`{"required":"30Gi","limit":"40Gi"}`,
		`{"required":"11Gi","limit":"12Gi"}`, // the limit is of the new wish
		`{"required":"30Gi","limit":null}`,
		`{"required":1099511627776,"limit":null}`,
	} {
		if err := patchVolume(t, v, `{"spec":{"size":`+size+`}}`); err != nil {
			t.Errorf("%s: %v", size, err)
		}
	}
	for size, field := range map[string]string{
		`null`:                              "spec.size",
		`{"required":null}`:                 "spec.size.required",
		`{"required":"10239Mi"}`:            "spec.size.required",
		`{"required":1}`:                    "spec.size.required",
		`{"required":"21Gi"}`:               "spec.size.limit",
		`{"required":"11Gi","limit":"1Gi"}`: "spec.size.limit",
		`{"limit":"30Gi"}`:                  "spec.size.limit",
		`{"limit":null}`:                    "spec.size.limit",
	} {
		t.Run(size, func(t *testing.T) { mustRefuse(t, patchVolume(t, v, `{"spec":{"size":`+size+`}}`), field) })
	}
}

func TestVolume_WithoutASizeCanBeGivenOne(t *testing.T) {
	needServer(t)
	v := makeVolume(t, &v1beta1.Volume{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-volume-"},
		Spec:       v1beta1.VolumeSpec{Name: "a", Node: nowhere},
	})
	for _, size := range []string{`{"required":"1Gi"}`, `{"required":"1Gi","limit":"2Gi"}`} {
		if err := patchVolume(t, v, `{"spec":{"size":`+size+`}}`); err != nil {
			t.Errorf("%s: %v", size, err)
		}
	}
}

func TestVolume_MetadataMayChange(t *testing.T) {
	needServer(t)
	v := makeVolume(t, fullVolume())
	check.Report(t, patchVolume(t, v, `{"metadata":{"labels":{"a":"b"},"finalizers":["`+v1beta1.AgentFinalizer+`"]}}`))
}
