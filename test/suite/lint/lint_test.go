// Package lint proves that the linter's rules about imports refuse what they are written to refuse.
// It also proves that what several modules of this repository share is of one version.
package lint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

const module = "github.com/holdfast-storage/holdfast"

// cases are imports and the rule that refuses each; a rule without a case here fails the test. That a rule allows what it
// must is shown by the repository, which the linter reads in make lint.
var cases = []struct{ file, imports, rule string }{
	{"agent/a.go", module + "/backend/local/image", "agent"},
	{"api/convert/a.go", module + "/backend/local", "api-convert"},
	{"api/v1beta1/a.go", module + "/api/client/clientset", "api"},
	{"backend/a.go", "golang.org/x/sys/unix", "backend"},
	{"backend/a_test.go", "k8s.io/client-go/kubernetes", "backend-without-kubernetes"},
	{"backend/ceph/a.go", module + "/backend/ceph/rbd", "backend-ceph"},
	{"backend/ceph/rbd/a.go", module + "/backend/local", "backend-ceph-engines"},
	{"backend/ceph/site/a.go", module + "/backend/local", "backend-ceph-site"},
	{"backend/cluster/a.go", module + "/backend/local", "backend-cluster"},
	{"backend/export/a.go", module + "/backend/local", "backend-export"},
	{"backend/local/a.go", module + "/driver", "backend-local"},
	{"backend/local/image/a.go", module + "/backend/local", "backend-local-engines"},
	{"bench/a.go", module + "/driver", "bench"},
	{"cmd/holdfast/a.go", module + "/test/rig", "tests-stay-tests"},
	{"crashpoint/a.go", module + "/nodeops", "crashpoint"},
	{"deploy/a.go", "k8s.io/api/core/v1", "deploy"},
	{"driver/a.go", "k8s.io/client-go/kubernetes", "driver"},
	{"driver/a.go", "k8s.io/klog/v2", "one-logger"},
	{"healthz/a.go", module + "/backend", "healthz"},
	{"kube/a.go", module + "/operator/render", "kube"},
	{"kubelet/devices/a.go", module + "/agent", "kubelet"},
	{"listener/a.go", module + "/backend", "listener"},
	{"nodeops/a_test.go", module + "/backend", "nodeops"},
	{"operator/a.go", module + "/nodeops", "operator"},
	{"operator/render/a.go", "os", "render"},
	{"operator/volume/a.go", module + "/backend/local", "operator-volume"},
	{"operator/volumecopy/a.go", module + "/backend/local", "operator-volumecopy"},
	{"parameters/a.go", module + "/backend", "parameters"},
	{"printable/a.go", module + "/report/status", "printable"},
	{"provisioner/a.go", module + "/operator", "provisioner"},
	{"report/web/a.go", module + "/nodeops", "report-and-admin"},
	{"transfer/a.go", "k8s.io/client-go/kubernetes", "transfer"},
}

func TestImports_EveryRuleRefusesWhatItIsWrittenFor(t *testing.T) {
	config := read(t, ".golangci.yml")
	files := map[string]string{"go.mod": exampleModule}
	for i, c := range cases {
		dir := filepath.Dir(c.file)
		file := fmt.Sprintf("%s/case%d%s", dir, i, strings.TrimPrefix(filepath.Base(c.file), "a"))
		files[file] = fmt.Sprintf("package %s\n\nimport _ %q\n", filepath.Base(dir), c.imports)
	}
	got := map[string]bool{} // files and the rule that refuses what they import
	for _, issue := range issues(t, "depguard", files) {
		if match := refusal.FindStringSubmatch(issue.Text); match != nil {
			got[fmt.Sprintf("%s: %s by %s", issue.Pos.Filename, match[1], match[2])] = true
		}
	}
	proven := map[string]bool{}
	for i, c := range cases {
		file := fmt.Sprintf("%s/case%d%s", filepath.Dir(c.file), i, strings.TrimPrefix(filepath.Base(c.file), "a"))
		if want := fmt.Sprintf("%s: %s by %s", file, c.imports, c.rule); !got[want] {
			t.Errorf("it is not refused: %s", want)
		}
		proven[c.rule] = true
	}
	for _, rule := range ruleNames(t, config) {
		if !proven[rule] {
			t.Errorf("rule %s has no case here that it refuses", rule)
		}
	}
}

var refusal = regexp.MustCompile(`^import '(.+)' is not allowed from list '(.+?)'`)

// calls are what forbidigo refuses, with a part of what it says.
var calls = []struct{ imports, call, says string }{
	{`"fmt"`, `fmt.Println("a")`, "never print"},
	{`"time"`, `time.Sleep(1)`, "wait for the event"},
	{`"os"`, `os.Exit(1)`, "only main ends the process"},
	{`"k8s.io/mount-utils"`, `m := mount.SafeFormatAndMount{}; _ = m.FormatAndMount("/dev/a", "/b", "ext4", nil)`, "formatted by nodeops alone"},
	{`"k8s.io/mount-utils"`, `m := &mount.SafeFormatAndMount{}; _ = m.FormatAndMountSensitive("/dev/a", "/b", "ext4", nil, nil)`, "formatted by nodeops alone"},
}

// mountUtils has of k8s.io/mount-utils what the calls need.
const mountUtils = `package mount

type SafeFormatAndMount struct{}

func (*SafeFormatAndMount) FormatAndMount(source, target, fstype string, options []string) error { return nil }

func (*SafeFormatAndMount) FormatAndMountSensitive(source, target, fstype string, options, sensitive []string) error {
	return nil
}
`

func TestCalls_EachForbiddenOneIsRefused(t *testing.T) {
	files := map[string]string{
		"go.mod":         exampleModule + "\nrequire k8s.io/mount-utils v0.0.0\n\nreplace k8s.io/mount-utils => ./mount\n",
		"mount/go.mod":   "module k8s.io/mount-utils\n\ngo 1.26.0\n",
		"mount/mount.go": mountUtils,
	}
	for i, c := range calls {
		files[fmt.Sprintf("nodeops/case%d.go", i)] = fmt.Sprintf("package nodeops\n\nimport %s\n\nfunc case%d() {\n\t%s\n}\n", c.imports, i, c.call)
	}
	said := map[string]string{}
	for _, issue := range issues(t, "forbidigo", files) {
		said[issue.Pos.Filename] += issue.Text
	}
	for i, c := range calls {
		if got := said[fmt.Sprintf("nodeops/case%d.go", i)]; !strings.Contains(got, c.says) {
			t.Errorf("%s: the linter says %q, want %q", c.call, got, c.says)
		}
	}
	if patterns := strings.Count(read(t, ".golangci.yml"), "        - pattern: "); patterns != 4 {
		t.Errorf("forbidigo has %d patterns: each has a case here", patterns)
	}
}

// exampleModule has another name: the cycles that the cases make must not be found, only refused.
const exampleModule = "module example.test\n\ngo 1.26.0\n"

// issue is what the linter has to say.
type issue struct {
	Text string
	Pos  struct{ Filename string }
}

// issues runs one linter, with the configuration of the repository, over a tree of some files.
func issues(t *testing.T, name string, files map[string]string) []issue {
	t.Helper()
	if testing.Short() {
		t.Skip("builds golangci-lint, which takes minutes the first time; run without -short")
	}
	tree := t.TempDir()
	files[".golangci.yml"] = read(t, ".golangci.yml")
	for file, content := range files {
		file = filepath.Join(tree, file)
		check.OK(t, os.MkdirAll(filepath.Dir(file), 0o755))
		check.OK(t, os.WriteFile(file, []byte(content), 0o600))
	}
	linter := exec.CommandContext(t.Context(), "go", "tool", "-n", "-modfile=test/tool/linter/go.mod", "golangci-lint-kube-api-linter")
	linter.Dir = repository
	path, err := linter.Output()
	if err != nil {
		t.Fatalf("finding golangci-lint: %v", err)
	}
	run := exec.CommandContext(t.Context(), strings.TrimSpace(string(path)), "run", "--enable-only="+name,
		"--allow-parallel-runners", "--issues-exit-code=0", "--output.json.path=stdout", "--show-stats=false", "./...")
	run.Dir = tree
	var stderr bytes.Buffer
	run.Stderr = &stderr
	out, err := run.Output()
	if err != nil {
		t.Fatalf("golangci-lint: %v\n%s", err, &stderr)
	}
	var report struct{ Issues []issue }
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("golangci-lint's report: %v\n%s", err, out)
	}
	return report.Issues
}

var ruleName = regexp.MustCompile(`(?m)^ {8}([a-z-]+):$`)

// ruleNames returns the names of the rules of depguard's section, which are the only keys that deep in it.
func ruleNames(t *testing.T, config string) []string {
	t.Helper()
	_, section, _ := strings.Cut(config, "\n    depguard:\n      rules:\n")
	section, _, found := strings.Cut(section, "\n    errcheck:\n")
	if !found {
		t.Fatal(".golangci.yml: no section depguard before errcheck")
	}
	var names []string
	for _, match := range ruleName.FindAllStringSubmatch(section, -1) {
		names = append(names, match[1])
	}
	return names
}
