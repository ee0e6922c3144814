package schema_test

import (
	"os"
	"slices"
	"testing"

	lua "github.com/yuin/gopher-lua"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/test/rig/check"
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

// verdicts are what kstatus, and the check of Argo CD, make of a phase and conditions; nil are those with which an object is
// created.
type verdicts map[string]struct {
	phase      string
	conditions []metav1.Condition
	kstatus    status.Status
	argo       string
}

const waiting = "Progressing waiting for the controller"

// Helm 4, Flux and kubectl wait judge by kstatus or as it does, and Argo CD by checks of deploy/gitops.
func TestReady_IsReadByKstatusAndArgoCD(t *testing.T) {
	serving := verdicts{
		"ready":          {"Running", following(true, false, false), status.CurrentStatus, "Healthy a"},
		"paused":         {"Paused", following(true, false, false), status.CurrentStatus, "Suspended a"},
		"not available":  {"Creating", following(false, false, false), status.InProgressStatus, "Progressing a"},
		"still changing": {"Running", following(true, true, false), status.InProgressStatus, "Progressing p"},
		"degraded":       {"Degraded", following(true, false, true), status.InProgressStatus, "Degraded d"},
		"none of it":     {"Degraded", following(false, true, true), status.InProgressStatus, "Degraded d"},
		"a wrong spec":   {"Degraded", following(true, false, true, "D"), status.FailedStatus, "Degraded d"},
		"no wrong spec":  {"Degraded", following(true, false, true, "E"), status.InProgressStatus, "Degraded d"},
		"just created":   {"", nil, status.InProgressStatus, waiting},
	}
	running := verdicts{
		"running":      {"Running", ran(false, false), status.InProgressStatus, "Progressing c"},
		"complete":     {"Complete", ran(true, false), status.CurrentStatus, "Healthy c"},
		"failed":       {"Failed", ran(false, true), status.FailedStatus, "Degraded f"},
		"just created": {"", nil, status.InProgressStatus, waiting},
	}
	unknown := []metav1.Condition{{Type: v1beta1.ReadyCondition, Status: metav1.ConditionUnknown, Reason: "R"}}
	stored := verdicts{ // which no one has Argo CD make
		"ready":        {"Ready", []metav1.Condition{kube.NewCondition(v1beta1.ReadyCondition, true, "R", "r")}, status.CurrentStatus, ""},
		"not ready":    {"Failed", []metav1.Condition{kube.NewCondition(v1beta1.ReadyCondition, false, "R", "r")}, status.InProgressStatus, ""},
		"not heard of": {"", unknown, status.InProgressStatus, ""},
		"just created": {"", nil, status.InProgressStatus, ""},
	}
	kinds, checks := definitions(t), healthChecks(t)
	for kind, cases := range map[string]verdicts{
		"StorageCluster": serving, "NFSServer": serving, "StorageUpgrade": running, "NodeJob": running,
		"Volume": stored, "Snapshot": stored, "StorageNode": stored,
	} {
		for name, c := range cases {
			o := created(kinds[kind], kind)
			judged := func(when string, kstatus status.Status, argo string) {
				t.Helper()
				if got := check.Got(status.Compute(o))(t); got.Status != kstatus {
					t.Errorf("%s, %s%s: kstatus says %s, want %s", kind, name, when, got.Status, kstatus)
				}
				if c.argo == "" {
					return
				}
				if got := health(t, checks[healthPrefix+kind], o.Object); got != argo {
					t.Errorf("%s, %s%s: Argo CD says %s, want %s", kind, name, when, got, argo)
				}
			}
			if c.conditions == nil {
				judged("", c.kstatus, c.argo)
				continue
			}
			setStatus(t, o, 1, c.phase, c.conditions)
			judged("", c.kstatus, c.argo)
			setStatus(t, o, 0, c.phase, c.conditions)
			judged(", of an earlier generation", status.InProgressStatus, waiting)
			o.SetDeletionTimestamp(new(metav1.Now()))
			judged(", being deleted", status.TerminatingStatus, waiting)
			delete(o.Object, "status")
			judged(", without a status", status.TerminatingStatus, waiting)
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

func setStatus(t *testing.T, o *unstructured.Unstructured, generation int64, phase string, conditions []metav1.Condition) {
	t.Helper()
	o.Object["status"] = check.Got(runtime.DefaultUnstructuredConverter.ToUnstructured(&struct {
		Phase              string             `json:"phase"`
		Conditions         []metav1.Condition `json:"conditions"`
		ObservedGeneration int64              `json:"observedGeneration"`
	}{phase, slices.Clone(conditions), generation}))(t)
}

const healthPrefix = "resource.customizations.health.holdfast.dev_"

// healthChecks are those of the repository, by their key, which ends with the kind.
func healthChecks(t *testing.T) map[string]string {
	t.Helper()
	var patch struct{ Data map[string]string }
	check.OK(t, yaml.UnmarshalStrict(check.Got(os.ReadFile("../../../deploy/gitops/argocd-cm.yaml"))(t), &patch))
	if len(patch.Data) != 4 {
		t.Errorf("there are %d checks", len(patch.Data))
	}
	return patch.Data
}

// health runs a check in the interpreter that Argo CD has, and returns the status and the message.
func health(t *testing.T, text string, object map[string]any) string {
	t.Helper()
	l := lua.NewState()
	defer l.Close()
	l.SetGlobal("obj", inLua(l, object))
	check.OK(t, l.DoString(text))
	answer, is := l.Get(-1).(*lua.LTable)
	if !is {
		t.Fatalf("it returns %s", l.Get(-1))
	}
	return answer.RawGetString("status").String() + " " + answer.RawGetString("message").String()
}

func inLua(l *lua.LState, value any) lua.LValue {
	switch value := value.(type) {
	case map[string]any:
		table := l.NewTable()
		for key, field := range value {
			table.RawSetString(key, inLua(l, field))
		}
		return table
	case []any:
		table := l.NewTable()
		for _, element := range value {
			table.Append(inLua(l, element))
		}
		return table
	case string:
		return lua.LString(value)
	case bool:
		return lua.LBool(value)
	case int64:
		return lua.LNumber(value)
	}
	return lua.LNil
}
