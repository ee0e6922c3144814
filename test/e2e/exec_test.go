package e2e

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/client-go/util/exec"
)

func TestACommandInAPodTellsItsOutputAndHowItFailed(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.Pod("idle")
	s.Ready("idle")
	if out := s.Exec("idle", "sh", "-c", "echo told; echo not told >&2"); out != "told\n" {
		t.Errorf("output %q", out)
	}
	_, err := s.ExecIn(t.Context(), s.Namespace, "idle", "main", "sh", "-c", "echo no disk >&2; exit 3")
	failed, ok := errors.AsType[exec.CodeExitError](err)
	if !ok || failed.Code != 3 || !strings.Contains(err.Error(), "no disk") {
		t.Errorf("error %v", err)
	}
}
