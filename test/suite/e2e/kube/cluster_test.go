package kube

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestCluster_ProgramThatDoesNotBuildIsReportedAndLeavesNothing(t *testing.T) {
	source := t.TempDir()
	t.Setenv("TMPDIR", t.TempDir())
	if err := os.WriteFile(filepath.Join(source, "main.go"), []byte("package main\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Connect(t.Context(), "x", source); err == nil || !strings.Contains(err.Error(), `cluster "x": building `+source) {
		t.Errorf("error %v", err)
	}
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "holdfast-e2e-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}

func TestCluster_RunsWaitForEachOther(t *testing.T) {
	dir := t.TempDir()
	first, second := &Cluster{Name: "x"}, &Cluster{Name: "x"}
	for range 2 { // the second time after it was released
		if err := first.takeTurn(lockIn(t, dir), t.Output()); err != nil {
			t.Fatal(err)
		}
		said, out := io.Pipe()
		ended := make(chan error, 1)
		lock := lockIn(t, dir)
		go func() { ended <- second.takeTurn(lock, out) }()
		line, err := bufio.NewReader(said).ReadString('\n')
		if err != nil || !strings.Contains(line, "another run of the tests in cluster x") {
			t.Errorf("said %q, %v", line, err)
		}
		if len(ended) > 0 {
			t.Error("the second did not wait")
		}
		if err := first.release(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if err := second.release(); err != nil {
			t.Fatal(err)
		}
	}
}

func lockIn(t *testing.T, dir string) *os.File {
	t.Helper()
	lock, err := os.OpenFile(filepath.Join(dir, "e2e.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

func TestCluster_EndOfARunNamesRemainingNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, client := imitation(t)
		for name, run := range map[string]string{"stays": c.run, "of-others": "another"} {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{runLabel: run}}}
			if err := client.Tracker().Add(namespace); err != nil {
				t.Fatal(err)
			}
		}
		err := c.Close()
		if err == nil || !strings.Contains(err.Error(), "namespace stays") || strings.Contains(err.Error(), "of-others") {
			t.Errorf("error %v", err)
		}
		if err := client.CoreV1().Namespaces().Delete(t.Context(), "stays", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Errorf("error %v", err)
		}
	})
}
