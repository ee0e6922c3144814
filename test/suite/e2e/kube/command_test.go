package kube

import (
	"os"
	"path/filepath"
	"testing"
)

func TestKubectl_IsThatOfTheClusterAndGetsItsKubeconfig(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\necho $KUBECONFIG $@\n[ $1 != fail ]\n"
	if err := os.WriteFile(filepath.Join(dir, "bin", "kubectl"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	c := &Cluster{dir: dir, kubeconfig: filepath.Join(dir, "kubeconfig")}
	if out := c.MustKubectl(t, "get", "pods"); out != c.Kubeconfig()+" get pods\n" {
		t.Errorf("it printed %q", out)
	}
	if out, err := c.Kubectl(t, "fail"); err == nil || out != c.Kubeconfig()+" fail\n" {
		t.Errorf("it printed %q and ended with %v", out, err)
	}
}
