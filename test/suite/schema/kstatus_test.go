package schema_test

import (
	"slices"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
)

// following are the conditions of a StorageCluster or NFSServer that follow from others, which are true or false.
func following(available, progressing, degraded bool, stall ...string) []metav1.Condition {
	conditions := []metav1.Condition{
		kube.NewCondition(v1beta1.AvailableCondition, available, "A", "a"), kube.NewCondition(v1beta1.ProgressingCondition, progressing, "P", "p"),
		kube.NewCondition(v1beta1.DegradedCondition, degraded, "D", "d"),
	}
	meta.SetStatusCondition(&conditions, kube.Ready(conditions))
	kube.Stall(&conditions, stall...)
	return conditions
}

// ran are the conditions of a StorageUpgrade or NodeJob.
func ran(complete, failed bool) (conditions []metav1.Condition) {
	kube.SetRunCondition(&conditions, kube.NewCondition(v1beta1.CompleteCondition, complete, "C", "c"))
	if failed {
		kube.SetRunCondition(&conditions, kube.NewCondition(v1beta1.FailedCondition, true, "F", "f"))
	}
	return conditions
}

// verdicts are what kstatus makes of conditions; nil are those with which an object is created.
type verdicts map[string]struct {
	conditions []metav1.Condition
	want       status.Status
}

// Helm 4, Flux and kubectl wait judge by kstatus or as it does.
func TestReady_IsReadByKstatus(t *testing.T) {
	serving := verdicts{
		"ready":          {following(true, false, false), status.CurrentStatus},
		"not available":  {following(false, false, false), status.InProgressStatus},
		"still changing": {following(true, true, false), status.InProgressStatus},
		"degraded":       {following(true, false, true), status.InProgressStatus},
		"just created":   {nil, status.InProgressStatus},
		"none of it":     {following(false, true, true), status.InProgressStatus},
		"a wrong spec":   {following(true, false, true, "D"), status.FailedStatus},
		"no wrong spec":  {following(true, false, true, "E"), status.InProgressStatus},
	}
	running := verdicts{
		"running":      {ran(false, false), status.InProgressStatus},
		"complete":     {ran(true, false), status.CurrentStatus},
		"failed":       {ran(false, true), status.FailedStatus},
		"just created": {nil, status.InProgressStatus},
	}
	stored := verdicts{
		"ready":        {[]metav1.Condition{kube.NewCondition(v1beta1.ReadyCondition, true, "R", "r")}, status.CurrentStatus},
		"not ready":    {[]metav1.Condition{kube.NewCondition(v1beta1.ReadyCondition, false, "R", "r")}, status.InProgressStatus},
		"not heard of": {[]metav1.Condition{{Type: v1beta1.ReadyCondition, Status: metav1.ConditionUnknown, Reason: "R"}}, status.InProgressStatus},
		"just created": {nil, status.InProgressStatus},
	}
	kinds := definitions(t)
	for kind, cases := range map[string]verdicts{
		"StorageCluster": serving, "NFSServer": serving, "StorageUpgrade": running, "NodeJob": running,
		"Volume": stored, "Snapshot": stored, "StorageNode": stored,
	} {
		for name, c := range cases {
			o := created(kinds[kind], kind)
			if c.conditions != nil {
				setStatus(t, o, 1, c.conditions)
			}
			if got := judged(t, o); got != c.want {
				t.Errorf("%s, %s: %s, want %s", kind, name, got, c.want)
			}
			if c.conditions == nil {
				continue
			}
			setStatus(t, o, 0, c.conditions)
			if got := judged(t, o); got != status.InProgressStatus {
				t.Errorf("%s, %s, of an earlier generation: %s", kind, name, got)
			}
			o.SetDeletionTimestamp(new(metav1.Now()))
			if got := judged(t, o); got != status.TerminatingStatus {
				t.Errorf("%s, %s, being deleted: %s", kind, name, got)
			}
		}
	}
}

// created is an object as the API server has it once it was created.
func created(d *definition, kind string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1beta1.SchemeGroupVersion.String(), "kind": kind, "spec": map[string]any{}}}
	o.SetName("a")
	o.SetGeneration(1)
	defaulting.Default(o.Object, d.structural)
	return o
}

func setStatus(t *testing.T, o *unstructured.Unstructured, generation int64, conditions []metav1.Condition) {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&struct {
		Conditions         []metav1.Condition `json:"conditions"`
		ObservedGeneration int64              `json:"observedGeneration"`
	}{slices.Clone(conditions), generation})
	if err != nil {
		t.Fatal(err)
	}
	o.Object["status"] = content
}

func judged(t *testing.T, o *unstructured.Unstructured) status.Status {
	t.Helper()
	result, err := status.Compute(o)
	if err != nil {
		t.Fatal(err)
	}
	return result.Status
}
