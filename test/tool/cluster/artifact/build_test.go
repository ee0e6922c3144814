package artifact

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/test/tool/cluster/host"
)

func program(t *testing.T, source string) Program {
	t.Helper()
	// The compiler's own cache lies in the same directory by default, and stays where it is.
	compiled, err := host.Run(t.Context(), "go", "env", "GOCACHE")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOCACHE", strings.TrimSpace(compiled))
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	module := t.TempDir()
	for file, text := range map[string]string{"go.mod": "module example\n\ngo 1.26.0\n", "go.sum": "", "main.go": source} {
		if err := os.WriteFile(filepath.Join(module, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Program{Name: "example", Module: module, Package: ".", Links: []string{"other"}}
}

func build(t *testing.T, p Program) string {
	t.Helper()
	dir, err := p.Build(t.Context(), func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestBuild_ProgramIsBuiltOnceUntilItsSourceChanges(t *testing.T) {
	p := program(t, "package main\n\nfunc main() {}\n")
	dir := build(t, p)
	before, err := os.Stat(filepath.Join(dir, "other"))
	if err != nil {
		t.Fatal(err)
	}
	if again := build(t, p); again != dir {
		t.Errorf("built in %s, then in %s", dir, again)
	}
	after, err := os.Stat(filepath.Join(dir, "example"))
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("it was built again: %v", err)
	}
	if err := os.WriteFile(filepath.Join(p.Module, "go.sum"), []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if build(t, p) == dir {
		t.Error("another go.sum gave the same program")
	}
}

func TestBuild_CompilerErrorIsShownAndNothingIsCached(t *testing.T) {
	p := program(t, "package main\n\nfunc main() { undefinedName() }\n")
	for range 2 {
		_, err := p.Build(t.Context(), func(string) {})
		if err == nil || !strings.Contains(err.Error(), "undefinedName") {
			t.Fatalf("error %v", err)
		}
	}
}

func TestPrograms_ReportTheVersionsOfTheirModules(t *testing.T) {
	for module, version := range map[string]string{"..": kubernetesVersion, "../oldest": OldestVersion} {
		text, err := os.ReadFile(filepath.Join(module, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		if line := "\tk8s.io/kubernetes " + version + "\n"; !strings.Contains(string(text), line) {
			t.Errorf("%s/go.mod does not require %q", module, strings.TrimSpace(line))
		}
	}
	minor := func(version string) string { return "Minor=" + strings.Split(version, ".")[1] }
	for _, p := range append(Programs(".."), OfOldest("..")...) {
		for name, version := range map[string]string{"kubernetes": kubernetesVersion, "kubernetes-oldest": OldestVersion} {
			if p.Name == name && !strings.HasSuffix(p.LDFlags, minor(version)) {
				t.Errorf("%s of %s is linked with %s", name, version, p.LDFlags)
			}
		}
	}
}
