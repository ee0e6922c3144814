package monitoring

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

const (
	root = "../../.."
	dir  = root + "/deploy/monitoring"
	docs = root + "/docs"
)

func TestMain(m *testing.M) { os.Exit(hostfs.Main(m)) }

// rule is an alert as the PrometheusRule has it.
type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

type group struct {
	Name  string `json:"name"`
	Rules []rule `json:"rules"`
}

// file is what Prometheus reads.
type file struct {
	Groups []group `json:"groups"`
}

func read(t *testing.T, path string) string {
	t.Helper()
	text := check.Got(os.ReadFile(path))(t)
	return string(text)
}

func write(t *testing.T, path string, content any) {
	t.Helper()
	text := check.Got(yaml.Marshal(content))(t)
	check.OK(t, os.WriteFile(path, text, 0o600))
}

// rules are those of the PrometheusRule.
func rules(t *testing.T) file {
	t.Helper()
	var object struct {
		Spec file `json:"spec"`
	}
	check.OK(t, yaml.Unmarshal([]byte(read(t, filepath.Join(dir, "prometheusrule.yaml"))), &object))
	return object.Spec
}

// program is the path of a program of Debian's package prometheus.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		hostfs.Skip(t, "prometheus", "needs Prometheus and promtool: Debian's package prometheus")
	}
	return path
}

func promtool(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), program(t, "promtool"), args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %v: %v\n%s", args, err, out)
	}
}
