package schema_test

import (
	"os"
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

const healthPrefix = "resource.customizations.health.holdfast.dev_"

// healthChecks are those of the repository, by kind.
func healthChecks(t *testing.T) map[string]string {
	t.Helper()
	content, err := os.ReadFile("../../../deploy/gitops/argocd-cm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var patch struct{ Data map[string]string }
	if err := yaml.UnmarshalStrict(content, &patch); err != nil {
		t.Fatal(err)
	}
	checks := map[string]string{}
	for key, check := range patch.Data {
		kind, is := strings.CutPrefix(key, healthPrefix)
		if !is {
			t.Errorf("what is %s?", key)
		}
		checks[kind] = check
	}
	return checks
}

// health runs a check in the interpreter that Argo CD has.
func health(t *testing.T, check string, object map[string]any) (status, message string) {
	t.Helper()
	l := lua.NewState()
	defer l.Close()
	l.SetGlobal("obj", inLua(l, object))
	if err := l.DoString(check); err != nil {
		t.Fatal(err)
	}
	answer, is := l.Get(-1).(*lua.LTable)
	if !is {
		t.Fatalf("it returns %s", l.Get(-1))
	}
	return answer.RawGetString("status").String(), answer.RawGetString("message").String()
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

func TestArgoCD_SeesWhatIsHealthy(t *testing.T) {
	unknown := []metav1.Condition{{Type: v1beta1.ReadyCondition, Status: metav1.ConditionUnknown, Reason: "Pending", Message: "m"}}
	serving := map[string]struct {
		conditions []metav1.Condition
		phase      string
		observed   int64
		want       string
	}{
		"ready":              {following(true, false, false), "Running", 2, "Healthy a"},
		"not available":      {following(false, false, false), "Creating", 2, "Progressing a"},
		"still changing":     {following(true, true, false), "Running", 2, "Progressing p"},
		"degraded":           {following(true, false, true), "Degraded", 2, "Degraded d"},
		"a wrong spec":       {following(true, false, true, "D"), "Degraded", 2, "Degraded d"},
		"paused":             {following(true, false, false), "Paused", 2, "Suspended a"},
		"not seen yet":       {following(true, false, false), "Running", 1, "Progressing waiting for the controller"},
		"just created":       {unknown, "", 0, "Progressing waiting for the controller"},
		"without a status":   {nil, "", 0, "Progressing waiting for the controller"},
		"an upgrade runs":    {ran(false, false), "Running", 2, "Progressing c"},
		"an upgrade is done": {ran(true, false), "Complete", 2, "Healthy c"},
		"an upgrade failed":  {ran(false, true), "Failed", 2, "Degraded f"},
	}
	checks := healthChecks(t)
	for _, kind := range []string{"StorageCluster", "NFSServer", "StorageUpgrade", "NodeJob"} {
		for name, c := range serving {
			object := map[string]any{"metadata": map[string]any{"generation": int64(2)}}
			if c.conditions != nil {
				status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v1beta1.StorageClusterStatus{Conditions: c.conditions, Phase: v1beta1.ClusterPhase(c.phase), ObservedGeneration: c.observed})
				if err != nil {
					t.Fatal(err)
				}
				object["status"] = status
			}
			if status, message := health(t, checks[kind], object); status+" "+message != c.want {
				t.Errorf("%s, %s: %s %s, want %s", kind, name, status, message, c.want)
			}
		}
	}
}
