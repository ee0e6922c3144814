package lint

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// A client has no part of a host, of which few would build for another system.
func TestClients_HaveNoPartsOfAHost(t *testing.T) {
	const module = "github.com/holdfast-storage/holdfast/"
	ofHosts := []string{"agent", "backend/local", "driver", "kubelet", "nodeops", "provisioner", "transfer"}
	for _, system := range []string{"darwin", "windows", "linux"} {
		list := exec.CommandContext(t.Context(), "go", "list", "-tags", "client", "-deps", "./cmd/holdfast")
		list.Dir, list.Env = repository, append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0", "GOFLAGS=")
		packages := strings.Fields(string(check.Got(list.Output())(t)))
		if !slices.Contains(packages, module+"report/doctor") {
			t.Errorf("%s: it is no client: %q", system, packages)
		}
		for _, name := range packages {
			part := strings.TrimPrefix(name, module)
			if part != "nodeops/mkfs" && slices.ContainsFunc(ofHosts, func(of string) bool { return part == of || strings.HasPrefix(part, of+"/") }) {
				t.Errorf("%s: it has %s", system, part)
			}
		}
	}
}
