package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/driver"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestTopology_KeyIsTheSameInTheDriverAndTheKinds(t *testing.T) {
	if driver.SharedVolumesKey != v1beta1.SharedVolumesKey {
		t.Errorf("%s and %s", driver.SharedVolumesKey, v1beta1.SharedVolumesKey)
	}
	if driver.TopologyKey != v1beta1.TopologyKey {
		t.Errorf("%s and %s", driver.TopologyKey, v1beta1.TopologyKey)
	}
}

func TestHelp_EachProcessOfAClusterExplainsItself(t *testing.T) {
	for command, flags := range map[string][]string{
		"controller": {"--endpoint SOCKET", "--attach", "--identity NAME", "--namespace NAMESPACE", "--kubeconfig FILE", "unix:///csi/csi.sock"},
		"node":       {"--node-name NAME", "--pool POOL", "--max-volumes-per-node NUMBER", "--kubelet-registration-dir DIRECTORY", "plugins_registry", "--register-driver", "--only-loop-sets"},
	} {
		out := check.Got(call(t, command, "--help"))(t)
		for _, want := range flags {
			if !strings.Contains(out, want) {
				t.Errorf("%s: %q is not in:\n%s", command, want, out)
			}
		}
	}
}

func TestFlags_WithoutAnAPIServerTheErrorNamesTheFlag(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := call(t, "controller"); err == nil || !strings.Contains(err.Error(), "--kubeconfig") {
		t.Errorf("outside of a pod: %v", err)
	}
	missing := filepath.Join(t.TempDir(), "config")
	if _, err := call(t, "controller", "--kubeconfig", missing); err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("without the file: %v", err)
	}
}

func TestFlags_LendingLoopDevicesRequiresSome(t *testing.T) {
	for _, nothing := range []string{"--loop-sets=0", "--kubelet-registration-dir="} {
		if _, err := call(t, "node", "--only-loop-sets", nothing); !errors.Is(err, errUsage) || !strings.Contains(err.Error(), "nothing to do") {
			t.Errorf("with %s: %v", nothing, err)
		}
	}
}

func TestFlags_NodeNeedsItsName(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "config")
	config := "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n" +
		"contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {}}]\ncurrent-context: c\n"
	check.OK(t, os.WriteFile(kubeconfig, []byte(config), 0o600))
	_, err := call(t, "node", "--kubeconfig", kubeconfig, "--pool", "name=fast,path="+t.TempDir())
	if err == nil || !strings.Contains(err.Error(), `node ""`) {
		t.Errorf("got %v", err)
	}
}
