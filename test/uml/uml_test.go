package uml

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-storage/holdfast/test/hostfs"
	"github.com/holdfast-storage/holdfast/test/standalone"
)

const module = "github.com/holdfast-storage/holdfast/"

// inside lists the tests that need project quotas, or a root that may grow a mounted ext4, and so run on the second
// kernel.
var inside = []struct{ pkg, run string }{
	{"nodeops", "Project|Quota|Grow|Resize"},
	{"backend/local", "TestDirectoryOn(XFS|Ext4)|TestLimitOfDirectoryOn(XFS|Ext4)|TestProject"},
	{"test/crash", "TestDirectoryOn(XFS|Ext4)|TestImageOnExt4"},
	{"test/sanity", "(XFS|Ext4)Quota"},
}

// runLimit bounds one package on one processor that the machines share.
const runLimit = 20 * time.Minute

func TestOnASecondKernel(t *testing.T) {
	hostfs.RequireRoot(t)
	if missing := Missing(); missing != "" {
		hostfs.Skip(t, "uml", missing)
	}
	work, err := os.MkdirTemp("", "holdfast-inside-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(work) })
	env := []string{"HOLDFAST_REQUIRE=root,prjquota"}
	for name, tags := range map[string][]string{"HOLDFAST_BINARY": nil, "HOLDFAST_CRASHING_BINARY": {"crashpoints"}} {
		dir := filepath.Join(work, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := standalone.Build(t.Context(), dir, tags...); err != nil {
			t.Fatal(err)
		}
		env = append(env, fmt.Sprintf("%s=/run/work/%s/holdfast", name, name))
	}
	t.Run("inside", func(t *testing.T) {
		for _, in := range inside {
			t.Run(in.pkg, func(t *testing.T) {
				t.Parallel()
				runInside(t, work, in.pkg, in.run, env)
			})
		}
	})
}

var verdict = regexp.MustCompile(`(?m)^\s*--- (PASS|FAIL|SKIP): .*`)

func runInside(t *testing.T, work, pkg, pattern string, env []string) {
	binary := strings.ReplaceAll(pkg, "/", "-") + ".test"
	cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", filepath.Join(work, binary), module+pkg)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("compiling the tests of %s: %v\n%s", pkg, err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), runLimit)
	defer cancel()
	var out bytes.Buffer
	argv := []string{"/run/work/" + binary, "-test.v", "-test.run", pattern, fmt.Sprintf("-test.timeout=%s", runLimit)}
	status, err := Run(ctx, Machine{MemoryMiB: 2000, DiskBytes: 40 << 30, Work: work}, argv, env, &out)
	count := map[string]int{}
	for _, v := range verdict.FindAllStringSubmatch(out.String(), -1) {
		count[v[1]]++
	}
	t.Logf("%s on the second kernel: %d passed, %d failed, %d skipped", pkg, count["PASS"], count["FAIL"], count["SKIP"])
	if err != nil || status != 0 || count["FAIL"] > 0 || count["SKIP"] > 0 || count["PASS"] == 0 {
		t.Errorf("status %d, %v:\n%s", status, err, out.String())
	}
}

func TestTheStatusOfTheProgramIsReturned(t *testing.T) {
	hostfs.RequireRoot(t)
	if missing := Missing(); missing != "" {
		hostfs.Skip(t, "uml", missing)
	}
	var out bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	status, err := Run(ctx, Machine{MemoryMiB: 256, DiskBytes: 1 << 30, Work: t.TempDir()}, []string{"sh", "-c", "echo \"$WORD\"; exit 7"}, []string{"WORD=it's here"}, &out)
	if err != nil || status != 7 || strings.TrimSpace(out.String()) != "it's here" {
		t.Errorf("status %d, %v, output %q", status, err, out.String())
	}
	dead, kill := context.WithCancel(t.Context())
	kill()
	if _, err := Run(dead, Machine{MemoryMiB: 256, DiskBytes: 1 << 30, Work: t.TempDir()}, []string{"true"}, nil, &out); err == nil {
		t.Error("a machine whose caller had gone told a status")
	}
}
