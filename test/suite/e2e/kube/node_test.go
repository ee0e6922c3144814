package kube

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// program is a cluster whose program writes down how it is called, and ends with the configured code.
func program(t *testing.T, script string) (c *Cluster, calls func() string) {
	t.Helper()
	c = &Cluster{Name: "x", scratch: t.TempDir(), source: t.TempDir()}
	script = "#!/bin/sh\necho $* >>" + filepath.Join(c.source, "calls") + "\n" + script
	if err := os.WriteFile(c.program(), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return c, func() string {
		data, err := os.ReadFile(filepath.Join(c.source, "calls"))
		if err != nil {
			t.Error(err)
		}
		return string(data)
	}
}

func TestNode_WithoutPowerIsBootedOnceByTheTestOrAtItsEnd(t *testing.T) {
	for name, test := range map[string]func(s *Space){
		"by the test":            func(s *Space) { s.CutPower("node2")() },
		"at its end":             func(s *Space) { s.CutPower("node2") },
		"at the end of a failed": func(s *Space) { s.CutPower("node2"); s.t.Fatal("on purpose") },
	} {
		t.Run(name, func(t *testing.T) {
			c, calls := program(t, "")
			try(t, "TestIt", func(t testing.TB) { test(&Space{Cluster: c, t: t}) })
			if got := calls(); got != "-name x kill-node node2\n-name x start-node node2\n" {
				t.Errorf("called %q", got)
			}
		})
	}
}

func TestNode_ThatDoesNotBootIsBootedAgainAtTheEndAndFailsTheTest(t *testing.T) {
	c, calls := program(t, `echo no disk >&2; [ "$3" != start-node ]`)
	failed := try(t, "TestIt", func(t testing.TB) { (&Space{Cluster: c, t: t}).CutPower("node2")() })
	if !failed.failed || !strings.Contains(failed.said.String(), "start-node node2") || !strings.Contains(failed.said.String(), "no disk") {
		t.Errorf("the failure says %q", failed.said.String())
	}
	if got := calls(); got != "-name x kill-node node2\n"+strings.Repeat("-name x start-node node2\n", 2) {
		t.Errorf("called %q", got)
	}
}

func TestTaint_IsRemovedByTheTestOrAtItsEnd(t *testing.T) {
	c, client := imitation(t)
	expect := func(t testing.TB, want ...string) {
		t.Helper()
		n, err := client.CoreV1().Nodes().Get(t.Context(), "node1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var keys []string
		for _, taint := range n.Spec.Taints {
			keys = append(keys, taint.Key)
		}
		if !slices.Equal(keys, want) {
			t.Errorf("it has the taints %v, want %v", keys, want)
		}
	}
	tried := try(t, "TestIt", func(t testing.TB) {
		s := &Space{Cluster: c, t: t}
		s.Taint("node1", "stays", "")
		off := s.Taint("node1", "goes", "")
		expect(t, "stays", "goes")
		off()
		expect(t, "stays")
	})
	if tried.failed {
		t.Error(tried.said.String())
	}
	expect(t)
}
