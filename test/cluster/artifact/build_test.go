package artifact

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

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
