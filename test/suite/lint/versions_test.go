package lint

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// modules take what several of them need in one version, so that it is compiled once for all. The peer of the benchmark
// and Helm 3 have the versions of their own releases.
var modules = []string{".", "test/suite/deploy", "test/tool/linter", "test/tool/generate", "test/cluster/dns", "test/cluster", "test/cluster/sidecars", "test/tool/vulncheck"}

// older is what some take in an older version together: the newest csi-provisioner that there is has that of Kubernetes,
// and that Kubernetes knows no newer CSI.
var older = map[string]*regexp.Regexp{
	"test/cluster":          regexp.MustCompile(olderKubernetes + `|^github\.com/container-storage-interface/spec$`),
	"test/cluster/sidecars": regexp.MustCompile(olderKubernetes),
}

const olderKubernetes = `^k8s\.io/(api.*|cli-runtime|client-go|component-.*|kubectl|kubelet|mount-utils|streaming)$`

func TestModules_ShareTheSameVersions(t *testing.T) {
	type taken struct{ by, version string }
	first := map[string]taken{}
	for _, module := range modules {
		shared := 0
		for path, version := range required(t, module) {
			if is := older[module]; is != nil && is.MatchString(path) {
				path += ", the older one"
			}
			other, ok := first[path]
			if !ok {
				first[path] = taken{module, version}
				continue
			}
			shared++
			if version != other.version {
				t.Errorf("%s has %s %s, %s has %s: take the newer in both with go get, and go mod tidy in each", module, path, version, other.by, other.version)
			}
		}
		if shared == 0 && module != modules[0] {
			t.Errorf("%s shares nothing with the others: it need not be looked at here", module)
		}
	}
}

// required returns the versions that the go.mod of a directory asks for, replaced ones as what they are replaced by.
func required(t *testing.T, dir string) map[string]string {
	t.Helper()
	edit := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json", filepath.Join(repository, dir, "go.mod"))
	type module struct{ Path, Version string }
	var file struct {
		Require []module
		Replace []struct{ Old, New module }
	}
	check.OK(t, json.Unmarshal(check.Got(edit.Output())(t), &file))
	all := map[string]string{}
	for _, r := range file.Require {
		all[r.Path] = r.Version
	}
	for _, r := range file.Replace {
		if _, ok := all[r.Old.Path]; ok && r.Old.Path == r.New.Path {
			all[r.Old.Path] = r.New.Version
		}
	}
	return all
}
