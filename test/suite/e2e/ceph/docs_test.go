package ceph

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/documents"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// documentedPool is that of docs/ceph.md, and its class.
const documentedPool = "ceph"

// TestDocs_FourCommandsLeadToABoundClaim runs the commands of docs/ceph.md as they are there.
func TestDocs_FourCommandsLeadToABoundClaim(t *testing.T) {
	t.Cleanup(func() { forgetDocumented(t) }) // after the claim
	s := begin(t)
	one, _ := withClients(t)
	script := documentedCommands(t)
	if got := strings.Count(script, "\n\n") + 1; got != 4 {
		t.Fatalf("docs/ceph.md has %d commands, not 4:\n%s", got, script)
	}
	out, err := inShell(t, s, script).CombinedOutput()
	if t.Logf("%s", out); err != nil {
		t.Fatal(err)
	}
	s.Volume("orders")
	if found := s.Run("writes", kube.Mount("orders", "/data"), kube.OnNode(one), kube.Script("echo written >/data/file; sync /data/file; cat /data/file")); found != "written\n" {
		t.Errorf("the claim has %q", found)
	}
}

// documentedCommands is the second block of the section: the first is for Rook.
func documentedCommands(t *testing.T) string {
	page := check.Got(os.ReadFile("../../../../docs/ceph.md"))(t)
	const title = "\n## From a Ceph that exists to a bound claim\n"
	_, section, found := strings.Cut(string(page), title)
	if section, _, _ = strings.Cut(section, "\n## "); !found {
		t.Fatalf("docs/ceph.md has no section %q", title)
	}
	blocks := documents.Paragraphs(section)
	if len(blocks) != 2 {
		t.Fatalf("the section has %d blocks of commands, not 2", len(blocks))
	}
	return strings.TrimSpace(blocks[1])
}

// inShell is a script of an administrator, who works in the namespace of the test.
func inShell(t *testing.T, s *kube.Space, script string) *exec.Cmd {
	home := t.TempDir()
	kubeconfig := filepath.Join(home, "config")
	content, err := os.ReadFile(cluster.Kubeconfig())
	if err == nil {
		err = os.WriteFile(kubeconfig, content, 0o600)
	}
	check.OK(t, err)
	kubectl := cluster.Command(t.Context(), "kubectl").Path
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", "kubectl config set-context --current --namespace="+s.Namespace+"\n"+script)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "CEPH_CONF="+filepath.Join(storage.Dir, "ceph.conf"), "PATH="+filepath.Dir(kubectl)+":"+os.Getenv("PATH"))
	return cmd
}

// forgetDocumented removes what the commands have made, but for the claim.
func forgetDocumented(t *testing.T) {
	if cluster == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), kube.Patience)
	defer cancel()
	check.Report(t, leave(ctx, func(spec *v1beta1.StorageClusterSpec) { without(spec, documentedPool) }))
	for _, args := range [][]string{
		{"delete", "--ignore-not-found", "storageclass", documentedPool},
		{"-n", kube.System, "delete", "--ignore-not-found", "secret", "ceph-holdfast"},
	} {
		cluster.MustKubectl(t, args...)
	}
	// Users and pool in Ceph end with it.
}
