package lint

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"
)

// follow are the modules that take what they share with Holdfast in the same version, so that it is compiled once for
// all of them. The others have versions of Kubernetes and of a peer that are their own.
var follow = []string{"test/deploy", "test/tools/generate", "test/cluster/sidecars", "test/cluster/dns"}

func TestModulesTakeWhatTheyShareWithHoldfastInTheSameVersion(t *testing.T) {
	ours := required(t, ".")
	for _, dir := range follow {
		shared := 0
		for path, version := range required(t, dir) {
			have, ok := ours[path]
			if !ok {
				continue
			}
			shared++
			if version != have {
				t.Errorf("%s has %s %s, Holdfast has %s: take the newer in both with go get, and go mod tidy in each", dir, path, version, have)
			}
		}
		if shared == 0 {
			t.Errorf("%s shares nothing with Holdfast: it need not be looked at here", dir)
		}
	}
}

// required returns the versions that the go.mod of a directory names.
func required(t *testing.T, dir string) map[string]string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json", filepath.Join("..", "..", dir, "go.mod")).Output()
	if err != nil {
		t.Fatalf("go.mod of %s: %v", dir, err)
	}
	var file struct {
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal(out, &file); err != nil {
		t.Fatalf("go.mod of %s: %v", dir, err)
	}
	all := map[string]string{}
	for _, r := range file.Require {
		all[r.Path] = r.Version
	}
	return all
}
