package api_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestStatus_KeepsEveryFieldOfAVolume(t *testing.T) {
	needServer(t)
	v := fullVolume()
	everyFieldIsSet(t, "spec", reflect.ValueOf(v.Spec), sharedOnly...)
	made := makeVolume(t, v)
	if !equality.Semantic.DeepEqual(made.Spec, v.Spec) {
		t.Errorf("the spec is %+v, want %+v", made.Spec, v.Spec)
	}
	waiting := v1beta1.VolumeStatus{Conditions: []metav1.Condition{{
		Type: v1beta1.ReadyCondition, Status: metav1.ConditionUnknown, Reason: "Pending", Message: "waiting for the agent", LastTransitionTime: metav1.Unix(0, 0),
	}}}
	if !equality.Semantic.DeepEqual(made.Status, waiting) {
		t.Errorf("who creates an object wrote the status %+v", made.Status)
	}
	made.Status, made.Spec.ClaimRef = fullVolumeStatus(), v1beta1.ReferenceTo("is/ignored")
	everyFieldIsSet(t, "status", reflect.ValueOf(made.Status), "access.directory", "access.nfs", "access.rbd", "access.cephfs")
	updated := check.Got(client.HoldfastV1beta1().Volumes().UpdateStatus(t.Context(), made, metav1.UpdateOptions{}))(t)
	if !equality.Semantic.DeepEqual(updated.Status, fullVolumeStatus()) {
		t.Errorf("the status is %+v, want %+v", updated.Status, fullVolumeStatus())
	}
	if updated.Spec.ClaimRef.String() != v.Spec.ClaimRef.String() || updated.Generation != 1 {
		t.Errorf("writing the status changed the spec to %+v", updated.Spec)
	}
	if used := updated.Status.Used.Value(); used != 1_234_567_891 {
		t.Errorf("of 1234567891 bytes %d are left", used)
	}
}

func TestStatus_KeepsEveryFieldOfASnapshot(t *testing.T) {
	needServer(t)
	s := fullSnapshot()
	everyFieldIsSet(t, "spec", reflect.ValueOf(s.Spec))
	made := makeSnapshot(t, s)
	if !equality.Semantic.DeepEqual(made.Spec, s.Spec) {
		t.Errorf("the spec is %+v, want %+v", made.Spec, s.Spec)
	}
	made.Status = fullSnapshotStatus()
	everyFieldIsSet(t, "status", reflect.ValueOf(made.Status))
	updated := check.Got(client.HoldfastV1beta1().Snapshots().UpdateStatus(t.Context(), made, metav1.UpdateOptions{}))(t)
	if !equality.Semantic.DeepEqual(updated.Status, fullSnapshotStatus()) {
		t.Errorf("the status is %+v, want %+v", updated.Status, fullSnapshotStatus())
	}
}

func TestStatus_KeepsEveryFieldOfANode(t *testing.T) {
	needServer(t)
	made := makeNode(t)
	made.Status = fullNodeStatus()
	everyFieldIsSet(t, "status", reflect.ValueOf(made.Status))
	updated := check.Got(client.HoldfastV1beta1().StorageNodes().UpdateStatus(t.Context(), made, metav1.UpdateOptions{}))(t)
	if !equality.Semantic.DeepEqual(updated.Status, fullNodeStatus()) {
		t.Errorf("the status is %+v, want %+v", updated.Status, fullNodeStatus())
	}
	if updated.Status.Pools[0].Name != "fast" {
		t.Errorf("the first pool is no more the first: %v", updated.Status.Pools)
	}
}

func TestStatus_UnknownValueIsRefused(t *testing.T) {
	needServer(t)
	v, s := makeVolume(t, fullVolume()), makeSnapshot(t, fullSnapshot())
	patchSnapshot := func(t *testing.T, s *v1beta1.Snapshot, patch string) error {
		_, err := client.HoldfastV1beta1().Snapshots().Patch(t.Context(), s.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: dryRun}, "status")
		return err
	}
	for field, value := range map[string]string{
		"phase":         `{"phase":"Fine"}`,
		"error.code":    `{"error":{"code":"Oops","message":"m"}}`,
		"error.message": `{"error":{"code":"Busy"}}`,
		"mode":          `{"mode":"Tape"}`,
		"size":          `{"size":"much"}`,
	} {
		mustRefuse(t, patchVolume(t, v, `{"status":`+value+`}`, "status"), "status."+field)
		mustRefuse(t, patchSnapshot(t, s, `{"status":`+value+`}`), "status."+field)
	}
	for field, value := range map[string]string{
		"access":            `{"access":{"image":"/a","directory":"/b"}}`,
		"access.nfs.server": `{"access":{"image":null,"nfs":{"path":"/a"}}}`,
		"access.nfs.path":   `{"access":{"image":null,"nfs":{"server":"10.0.0.1","path":"a"}}}`,
		"provisioning":      `{"provisioning":"thin"}`,
		"sourceRef.kind":    `{"sourceRef":{"kind":"volume","name":"a"}}`,
		"sourceRef.name":    `{"sourceRef":{"kind":"Volume","name":"A"}}`,
	} {
		mustRefuse(t, patchVolume(t, v, `{"status":`+value+`}`, "status"), "status."+field)
	}
}

func TestStatus_OfADamagedVolumeMayBeIncomplete(t *testing.T) {
	needServer(t)
	v := makeVolume(t, fullVolume())
	damaged := `{"status":{"phase":"Failed","access":{},"conditions":[],"mode":"","provisioning":""}}`
	check.Report(t, patchVolume(t, v, damaged, "status"))
}

// everyFieldIsSet finds what a test of all fields forgot. The first of several is looked at.
func everyFieldIsSet(t *testing.T, path string, value reflect.Value, but ...string) {
	t.Helper()
	if _, rest, _ := strings.Cut(path, "."); slices.Contains(but, rest) {
		return
	}
	if value.IsZero() {
		t.Fatalf("the test leaves out %s", path)
	}
	switch {
	case value.Kind() == reflect.Pointer:
		everyFieldIsSet(t, path, value.Elem(), but...)
	case value.Kind() == reflect.Slice:
		everyFieldIsSet(t, path, value.Index(0), but...)
	case value.Kind() == reflect.Struct && value.Type().PkgPath() == reflect.TypeFor[v1beta1.Volume]().PkgPath():
		for field, inner := range value.Fields() {
			everyFieldIsSet(t, path+"."+jsonName(field), inner, but...)
		}
	}
}

// jsonNames are the names of a type's fields, in order.
func jsonNames[T any]() []string {
	var names []string
	for field := range reflect.TypeFor[T]().Fields() {
		names = append(names, jsonName(field))
	}
	slices.Sort(names)
	return names
}

func jsonName(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	return name
}
