package monitoring

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/documents"
)

// asADocumentSays is the command of docs/monitoring.md that makes a file of rules for a Prometheus without its operator.
var asADocumentSays = regexp.MustCompile(`(?m)^    (sed .*) deploy/monitoring/prometheusrule\.yaml > rules\.yaml$`)

// plain is that file.
func plain(t *testing.T) string {
	t.Helper()
	command := asADocumentSays.FindStringSubmatch(read(t, docs+"/monitoring.md"))
	if command == nil {
		t.Fatalf("docs/monitoring.md has no command like %s", asADocumentSays)
	}
	text := check.Got(exec.CommandContext(t.Context(), "sh", "-c", command[1]+" "+dir+"/prometheusrule.yaml").Output())(t)
	path := filepath.Join(t.TempDir(), "rules.yaml")
	check.OK(t, os.WriteFile(path, text, 0o600))
	return path
}

func TestRules_AreValidForAPlainPrometheus(t *testing.T) {
	promtool(t, "check", "rules", plain(t))
}

func TestRules_EachAlertFiresAndClears(t *testing.T) {
	var tests []any
	missing := maps.Clone(histories)
	for _, g := range rules(t).Groups {
		for _, r := range g.Rules {
			h, ok := histories[r.Alert]
			if !ok {
				t.Errorf("no history makes %s fire and clear", r.Alert)
			}
			delete(missing, r.Alert)
			var series []any
			for name, values := range h.series {
				series = append(series, map[string]string{"series": name, "values": values})
			}
			// firing asks how many of the alert fire at a time: none, or one.
			firing := func(at string, samples ...any) map[string]any {
				expr := fmt.Sprintf(`count(ALERTS{alertname=%q,alertstate="firing"})`, r.Alert)
				return map[string]any{"expr": expr, "eval_time": at, "exp_samples": samples}
			}
			one := map[string]any{"labels": "{}", "value": 1}
			tests = append(tests, map[string]any{
				"name": r.Alert, "interval": "1m", "input_series": series,
				"promql_expr_test": []any{firing(h.before), firing(h.fires, one), firing(h.clears)},
			})
		}
	}
	for name := range missing {
		t.Errorf("there is no alert %s", name)
	}
	if t.Failed() {
		return
	}
	path := filepath.Join(t.TempDir(), "tests.yaml")
	write(t, path, map[string]any{"rule_files": []string{plain(t)}, "evaluation_interval": "1m", "tests": tests})
	promtool(t, "test", "rules", path)
}

func TestRules_EachAlertSaysWhatToDo(t *testing.T) {
	const prefix = "https://github.com/holdfast-storage/holdfast/blob/main/docs/"
	page := read(t, docs+"/monitoring.md")
	for _, g := range rules(t).Groups {
		for _, r := range g.Rules {
			if s := r.Labels["severity"]; s != "warning" && s != "critical" {
				t.Errorf("%s: severity %q", r.Alert, s)
			}
			if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("%s has no summary or no description", r.Alert)
			}
			name, anchor, _ := strings.Cut(strings.TrimPrefix(r.Annotations["runbook_url"], prefix), "#")
			if !strings.HasPrefix(r.Annotations["runbook_url"], prefix) || !slices.Contains(documents.Anchors(read(t, filepath.Join(docs, name))), anchor) {
				t.Errorf("%s: the runbook %q does not exist", r.Alert, r.Annotations["runbook_url"])
			}
			if !strings.Contains(page, "| `"+r.Alert+"` | "+r.Labels["severity"]+" |") {
				t.Errorf("the table of docs/monitoring.md does not have the %s alert %s", r.Labels["severity"], r.Alert)
			}
			checkNames(t, r.Alert, r.Expr)
		}
	}
}

// ofOthers are metrics that Holdfast serves as every program in Go does, and those of Prometheus, the kubelet and kube-state-metrics.
var ofOthers = []string{
	"kube_persistentvolume_claim_ref", "kube_persistentvolume_info", "kubelet_volume_stats_available_bytes", "kubelet_volume_stats_capacity_bytes",
	"up", "go_goroutines", "process_open_fds", "process_max_fds", "process_resident_memory_bytes",
}

var (
	metricPattern = regexp.MustCompile(`\b(up|(?:holdfast|go|process|kube|kubelet|node)_[a-z0-9_]+)\b\s*[\[{]?`)
	stringPattern = regexp.MustCompile(`"[^"]*"`)
)

// checkNames reports metrics of a query that no process serves.
func checkNames(t *testing.T, where, query string) {
	t.Helper()
	table := read(t, docs+"/metrics.md")
	found := metricPattern.FindAllStringSubmatch(stringPattern.ReplaceAllString(query, `""`), -1)
	if len(found) == 0 {
		t.Errorf("%s: %s has no metric", where, query)
	}
	for _, metric := range found {
		name := strings.TrimSuffix(metric[1], "_bucket")
		if !slices.Contains(ofOthers, name) && !strings.Contains(table, "\n| `"+name+"` |") {
			t.Errorf("%s: docs/metrics.md has no %s", where, name)
		}
	}
}
