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
)

const (
	module = "github.com/holdfast-storage/holdfast"
	allow  = ""
)

// cases are imports and the rule that refuses each; a rule without a case here fails the test.
var cases = []struct{ file, imports, rule string }{
	{"backend/a.go", "golang.org/x/sys/unix", "backend"},
	{"backend/a.go", module + "/nodeops", "backend"},
	{"backend/a.go", module + "/backend/local/engine", "backend"},
	{"backend/a.go", "os", allow},
	{"backend/a_test.go", module + "/backend/backendtest", allow},
	{"backend/a_test.go", "k8s.io/client-go/kubernetes", "backend-without-kubernetes"},

	{"backend/local/image/a.go", "github.com/container-storage-interface/spec/lib/go/csi", "backend-local-engines"},
	{"backend/local/image/a.go", "k8s.io/apimachinery/pkg/api/resource", "backend-local-engines"},
	{"backend/local/image/a.go", module + "/backend/local", "backend-local-engines"},
	{"backend/local/image/a.go", module + "/driver", "backend-local-engines"},
	{"backend/local/image/a.go", "github.com/prometheus/client_golang/prometheus", "backend-local-engines"},
	{"backend/local/image/a.go", module + "/backend", allow},
	{"backend/local/image/a.go", module + "/backend/local/engine", allow},
	{"backend/local/image/a.go", module + "/crashpoint", allow},
	{"backend/local/image/a.go", module + "/nodeops", allow},
	{"backend/local/image/a.go", "golang.org/x/sys/unix", allow},
	{"backend/local/image/a.go", "golang.org/x/sync/errgroup", allow},
	{"backend/local/image/a_test.go", "google.golang.org/grpc", "backend-without-kubernetes"},
	{"backend/local/image/a_test.go", "github.com/container-storage-interface/spec/lib/go/csi", "backend-without-kubernetes"},
	{"backend/local/image/a_test.go", "github.com/kubernetes-csi/csi-test/v5/pkg/sanity", "backend-without-kubernetes"},
	{"backend/local/image/a_test.go", "sigs.k8s.io/yaml", "backend-without-kubernetes"},

	{"backend/local/a.go", module + "/driver", "backend-local"},
	{"backend/local/a.go", "k8s.io/utils/exec", "backend-local"},
	{"backend/local/a.go", module + "/backend/local/image", allow},
	{"backend/local/a.go", module + "/backend/local/directory", allow},
	{"backend/local/a.go", module + "/backend", allow},
	{"backend/local/a.go", module + "/crashpoint", allow},
	{"backend/local/a.go", module + "/backend/local/engine", allow},
	{"backend/local/a.go", module + "/nodeops", allow},
	{"backend/local/a.go", "golang.org/x/sync/errgroup", allow},
	{"backend/local/a.go", "golang.org/x/sys/unix", allow},
	{"backend/local/a.go", "os", allow},
	{"backend/local/a.go", "github.com/prometheus/client_golang/prometheus", allow},

	{"backend/export/a.go", module + "/backend/local", "backend-export"},
	{"backend/export/a.go", module + "/nodeops/ganesha", allow},

	{"backend/ceph/a.go", module + "/nodeops", "backend-ceph"},
	{"backend/ceph/a.go", module + "/backend/ceph/rbd", "backend-ceph"},
	{"backend/ceph/a.go", module + "/backend", allow},
	{"backend/ceph/a.go", "github.com/ceph/go-ceph/rados", allow},
	{"backend/ceph/rbd/a.go", module + "/backend/local", "backend-ceph-engines"},
	{"backend/ceph/rbd/a.go", "k8s.io/utils/exec", "backend-ceph-engines"},
	{"backend/ceph/rbd/a.go", module + "/backend/ceph", allow},
	{"backend/ceph/rbd/a.go", module + "/crashpoint", allow},
	{"backend/ceph/rbd/a.go", "github.com/ceph/go-ceph/rbd", allow},
	{"backend/ceph/site/a.go", module + "/nodeops", "backend-ceph-site"},
	{"backend/ceph/site/a.go", module + "/backend/ceph/rbd", allow},
	{"backend/ceph/site/a.go", "github.com/prometheus/client_golang/prometheus", allow},

	{"backend/cluster/a.go", module + "/nodeops", "backend-cluster"},
	{"backend/cluster/a.go", module + "/backend/local", "backend-cluster"},
	{"backend/cluster/a.go", module + "/agent", "backend-cluster"},
	{"backend/cluster/a.go", "github.com/container-storage-interface/spec/lib/go/csi", "backend-cluster"},
	{"backend/cluster/a.go", module + "/api/v1beta1", allow},
	{"backend/cluster/a.go", module + "/api/convert", allow},
	{"backend/cluster/a.go", module + "/backend", allow},
	{"backend/cluster/a.go", module + "/kube", allow},
	{"backend/cluster/a.go", module + "/kube/apply", "backend-cluster"},
	{"backend/cluster/a.go", "k8s.io/client-go/kubernetes", allow},

	{"bench/a.go", module + "/driver", "bench"},
	{"bench/a.go", module + "/api/v1beta1", "bench"},
	{"bench/a.go", "k8s.io/client-go/kubernetes", allow},
	{"bench/a.go", module + "/printable", allow},

	{"nodeops/a.go", module + "/backend", "nodeops"},
	{"nodeops/a.go", "k8s.io/api/core/v1", "nodeops"},
	{"nodeops/a_test.go", module + "/backend", "nodeops"},
	{"nodeops/a.go", "k8s.io/mount-utils", allow},
	{"nodeops/ganesha/a.go", "github.com/godbus/dbus/v5", allow},
	{"nodeops/a.go", "golang.org/x/sys/unix", allow},
	{"nodeops/a.go", "golang.org/x/sync/errgroup", allow},
	{"nodeops/a.go", "k8s.io/utils/exec", allow},
	{"nodeops/a.go", "os", allow},
	{"nodeops/a_test.go", module + "/nodeops", allow},

	{"api/v1beta1/a.go", "k8s.io/client-go/kubernetes", "api"},
	{"api/v1beta1/a.go", "k8s.io/api/core/v1", allow},
	{"api/v1beta1/a.go", "k8s.io/api/apps/v1", "api"},
	{"api/v1beta1/a.go", module + "/backend", "api"},
	{"api/v1beta1/a.go", "k8s.io/apimachinery/pkg/apis/meta/v1", allow},
	{"api/v1beta1/a.go", module + "/api/client/clientset", "api"},
	{"api/v1beta1/a.go", "time", allow},

	{"api/convert/a.go", module + "/nodeops", "api-convert"},
	{"api/convert/a.go", module + "/backend/local", "api-convert"},
	{"api/convert/a.go", "k8s.io/client-go/kubernetes", "api-convert"},
	{"api/convert/a.go", module + "/api/v1beta1", allow},
	{"api/convert/a.go", module + "/backend", allow},
	{"api/v1beta1/a.go", module + "/api/convert", "api"},

	{"driver/a.go", module + "/provisioner", "driver"},
	{"driver/a.go", module + "/operator", "driver"},
	{"driver/a.go", module + "/operator/apply", "driver"},
	{"driver/a.go", module + "/agent", "driver"},
	{"driver/a.go", module + "/backend/local", "driver"},
	{"driver/a.go", module + "/backend/local/image", "driver"},
	{"driver/a.go", "k8s.io/client-go/kubernetes", "driver"},
	{"driver/a.go", "k8s.io/api/core/v1", "driver"},
	{"driver/a.go", module + "/api/v1beta1", "driver"},
	{"driver/a.go", module + "/backend", allow},
	{"driver/a.go", module + "/crashpoint", allow},
	{"driver/a.go", module + "/nodeops", allow},
	{"driver/a.go", "google.golang.org/grpc", allow},
	{"driver/a_test.go", module + "/backend/backendtest", allow},

	{"provisioner/a.go", module + "/driver", "provisioner"},
	{"provisioner/a.go", module + "/operator", "provisioner"},
	{"provisioner/a.go", module + "/agent", "provisioner"},
	{"provisioner/a.go", module + "/backend/cluster", "provisioner"},
	{"provisioner/a.go", module + "/backend", allow},

	{"operator/a.go", module + "/driver", "operator"},
	{"operator/a.go", module + "/provisioner", "operator"},
	{"operator/a.go", module + "/agent", "operator"},
	{"operator/a.go", module + "/backend/local", "operator"},
	{"operator/a.go", module + "/api/convert", "operator"},
	{"operator/a.go", module + "/nodeops", "operator"},
	{"operator/a.go", module + "/report/status", "operator"},
	{"operator/a.go", module + "/kube/apply", allow},
	{"operator/nfs/a.go", module + "/driver", "operator"},
	{"operator/render/a.go", "os", "render"},
	{"operator/render/a_test.go", "os", allow},
	{"operator/nfs/a.go", module + "/backend/cluster", "operator"},

	{"operator/volume/a.go", module + "/backend/local", "operator-volume"},
	{"operator/volume/a.go", module + "/nodeops", "operator-volume"},
	{"operator/volume/a.go", module + "/agent", "operator-volume"},
	{"operator/volume/a.go", module + "/operator/render", "operator-volume"},
	{"operator/volumecopy/a.go", module + "/backend/local", "operator-volumecopy"},
	{"operator/volumecopy/a.go", module + "/operator/render", "operator-volumecopy"},
	{"operator/volume/a.go", module + "/backend/cluster", allow},
	{"operator/volume/a.go", module + "/kube", allow},

	{"report/status/a.go", module + "/backend", "report-and-admin"},
	{"report/web/a.go", module + "/nodeops", "report-and-admin"},
	{"report/web/a.go", module + "/api/convert", "report-and-admin"},
	{"admin/a.go", module + "/driver", "report-and-admin"},
	{"admin/a.go", module + "/api/v1beta1", allow},

	{"kube/a.go", module + "/operator/render", "kube"},
	{"kube/a.go", module + "/backend", "kube"},
	{"kube/a.go", module + "/api/convert", "kube"},
	{"kube/a.go", module + "/api/v1beta1", allow},
	{"kube/a.go", module + "/api/client/clientset", allow},
	{"kube/a.go", "k8s.io/client-go/tools/cache", allow},
	{"kube/apply/a.go", module + "/kube", allow},

	{"kubelet/devices/a.go", module + "/agent", "kubelet"},
	{"kubelet/devices/a.go", "k8s.io/client-go/kubernetes", "kubelet"},
	{"kubelet/registration/a.go", module + "/driver", allow},

	{"transfer/a.go", module + "/backend", "transfer"},
	{"transfer/a.go", "k8s.io/client-go/kubernetes", "transfer"},
	{"transfer/a.go", module + "/nodeops", allow},

	{"crashpoint/a.go", module + "/nodeops", "crashpoint"},
	{"deploy/a.go", "k8s.io/api/core/v1", "deploy"},
	{"deploy/a.go", "embed", allow},
	{"parameters/a.go", module + "/backend", "parameters"},
	{"parameters/a.go", "regexp", allow},
	{"printable/a.go", module + "/report/status", "printable"},

	{"healthz/a.go", module + "/backend", "healthz"},
	{"listener/a.go", module + "/backend", "listener"},
	{"listener/a.go", "google.golang.org/grpc/keepalive", allow},
	{"operator/a.go", module + "/api/v1beta1", allow},

	{"agent/a.go", module + "/driver", "agent"},
	{"agent/a.go", module + "/operator", "agent"},
	{"agent/a.go", module + "/provisioner", "agent"},
	{"agent/a.go", module + "/backend/local/image", "agent"},
	{"agent/a.go", module + "/nodeops", allow},

	{"cmd/holdfast/a.go", module + "/test/rig", "tests-stay-tests"},
	{"cmd/holdfast/a.go", "testing", "tests-stay-tests"},
	{"cmd/holdfast/a.go", module + "/driver", allow},
	{"cmd/holdfast/a.go", module + "/backend/local", allow},
	{"cmd/holdfast/a.go", "k8s.io/klog/v2", allow},
	{"backend/backendtest/a.go", "testing", allow},

	{"driver/a.go", "log", "one-logger"},
	{"driver/a.go", "io/ioutil", "one-logger"},
	{"driver/a.go", "github.com/pkg/errors", "one-logger"},
	{"driver/a.go", "k8s.io/klog/v2", "one-logger"},
	{"driver/a.go", "log/slog", allow},
	{"test/suite/e2e/a.go", module + "/operator", allow},
}

func TestImports_EveryRuleRefusesWhatItIsWrittenFor(t *testing.T) {
	if testing.Short() {
		t.Skip("builds golangci-lint, which takes minutes the first time; run without -short")
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(filepath.Join(root, ".golangci.yml"))
	if err != nil {
		t.Fatal(err)
	}
	tree := t.TempDir()
	write(t, filepath.Join(tree, ".golangci.yml"), string(config))
	// A module of another name: the cycles that the cases make must not be found, only refused.
	write(t, filepath.Join(tree, "go.mod"), "module example.test\n\ngo 1.26.0\n")
	want := map[string]string{}
	for i, c := range cases {
		file := fmt.Sprintf("%s/case%d%s", filepath.Dir(c.file), i, strings.TrimPrefix(filepath.Base(c.file), "a"))
		write(t, filepath.Join(tree, file), fmt.Sprintf("package %s\n\nimport _ %q\n", filepath.Base(filepath.Dir(c.file)), c.imports))
		if c.rule != allow {
			want[fmt.Sprintf("%s: %s", file, c.imports)] = c.rule
		}
	}
	got := refusals(t, root, tree)
	proven := map[string]bool{}
	for what, rule := range want {
		if !got[what][rule] {
			t.Errorf("%s: want it refused by rule %s, got %v", what, rule, got[what])
		}
		proven[rule] = true
	}
	for what, rules := range got {
		if want[what] == "" {
			t.Errorf("%s: want it allowed, but %v refuse it", what, rules)
		}
	}
	for _, rule := range ruleNames(t, string(config)) {
		if !proven[rule] {
			t.Errorf("rule %s has no case here that it refuses", rule)
		}
	}
}

var refusal = regexp.MustCompile(`^import '(.+)' is not allowed from list '(.+?)'`)

// refusals runs the linter over tree and returns what was refused, and by which rules.
func refusals(t *testing.T, root, tree string) map[string]map[string]bool {
	t.Helper()
	found := map[string]map[string]bool{}
	for _, issue := range issues(t, root, tree, "depguard") {
		match := refusal.FindStringSubmatch(issue.Text)
		if match == nil {
			t.Fatalf("unexpected: %s: %s", issue.Pos.Filename, issue.Text)
		}
		what := fmt.Sprintf("%s: %s", issue.Pos.Filename, match[1])
		if found[what] == nil {
			found[what] = map[string]bool{}
		}
		found[what][match[2]] = true
	}
	return found
}

// calls are what forbidigo refuses, with a part of what it says.
var calls = []struct{ imports, call, says string }{
	{`"fmt"`, `fmt.Println("a")`, "never print"},
	{`"time"`, `time.Sleep(1)`, "wait for the event"},
	{`"os"`, `os.Exit(1)`, "only main ends the process"},
	{`"k8s.io/mount-utils"`, `m := mount.SafeFormatAndMount{}; _ = m.FormatAndMount("/dev/a", "/b", "ext4", nil)`, "formatted by nodeops alone"},
	{`"k8s.io/mount-utils"`, `m := &mount.SafeFormatAndMount{}; _ = m.FormatAndMountSensitive("/dev/a", "/b", "ext4", nil, nil)`, "formatted by nodeops alone"},
	{`"k8s.io/mount-utils"`, `m := &mount.SafeFormatAndMount{}; _ = m.Mount("/dev/a", "/b", "ext4", nil)`, allow},
}

// mountUtils has of k8s.io/mount-utils what the calls need.
const mountUtils = `package mount

type Mounter struct{}

func (*Mounter) Mount(source, target, fstype string, options []string) error { return nil }

type SafeFormatAndMount struct{ Mounter }

func (*SafeFormatAndMount) FormatAndMount(source, target, fstype string, options []string) error { return nil }

func (*SafeFormatAndMount) FormatAndMountSensitive(source, target, fstype string, options, sensitive []string) error {
	return nil
}
`

func TestCalls_EachForbiddenOneIsRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("builds golangci-lint, which takes minutes the first time; run without -short")
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(filepath.Join(root, ".golangci.yml"))
	if err != nil {
		t.Fatal(err)
	}
	tree, utils := t.TempDir(), t.TempDir()
	write(t, filepath.Join(utils, "go.mod"), "module k8s.io/mount-utils\n\ngo 1.26.0\n")
	write(t, filepath.Join(utils, "mount.go"), mountUtils)
	write(t, filepath.Join(tree, ".golangci.yml"), string(config))
	write(t, filepath.Join(tree, "go.mod"), "module example.test\n\ngo 1.26.0\n\nrequire k8s.io/mount-utils v0.0.0\n\nreplace k8s.io/mount-utils => "+utils+"\n")
	for i, c := range calls {
		write(t, filepath.Join(tree, fmt.Sprintf("nodeops/case%d.go", i)), fmt.Sprintf("package nodeops\n\nimport %s\n\nfunc case%d() {\n\t%s\n}\n", c.imports, i, c.call))
	}
	said := map[string]string{}
	for _, issue := range issues(t, root, tree, "forbidigo") {
		said[issue.Pos.Filename] += issue.Text
	}
	for i, c := range calls {
		got := said[fmt.Sprintf("nodeops/case%d.go", i)]
		if (got == "") != (c.says == allow) || !strings.Contains(got, c.says) {
			t.Errorf("%s: the linter says %q, want %q", c.call, got, c.says)
		}
	}
	if patterns := strings.Count(string(config), "        - pattern: "); patterns != 4 {
		t.Errorf("forbidigo has %d patterns: each has a case here", patterns)
	}
}

// issue is what the linter has to say.
type issue struct {
	Text string
	Pos  struct{ Filename string }
}

// issues runs one linter over tree.
func issues(t *testing.T, root, tree, name string) []issue {
	t.Helper()
	linter := exec.CommandContext(t.Context(), "go", "tool", "-n", "-modfile=test/tool/linter/go.mod", "golangci-lint-kube-api-linter")
	linter.Dir = root
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

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
