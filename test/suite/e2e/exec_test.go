package e2e

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/client-go/util/exec"
)

func TestExec_ReturnsTheOutputAndTheError(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.Pod("idle")
	s.Ready("idle")
	if out := s.Exec("idle", "sh", "-c", "echo out; echo not out >&2"); out != "out\n" {
		t.Errorf("output %q", out)
	}
	_, err := s.ExecIn(t.Context(), s.Namespace, "idle", "main", "sh", "-c", "echo no disk >&2; exit 3")
	failed, ok := errors.AsType[exec.CodeExitError](err)
	if !ok || failed.Code != 3 || !strings.Contains(err.Error(), "no disk") {
		t.Errorf("error %v", err)
	}
}
