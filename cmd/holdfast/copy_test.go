package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/transfer/protocol"
)

func TestCopy_ExitCodeSaysWhetherAnotherRunMayHelp(t *testing.T) {
	dir := t.TempDir()
	file, result := filepath.Join(dir, "file"), filepath.Join(dir, "result")
	check.OK(t, os.WriteFile(file, nil, 0o600))
	out, err := call(t, "copy", "--from", file, "--to", dir, "--result", result)
	if exitCode(err) != protocol.FinalExit || errors.Is(err, errUsage) || !strings.Contains(err.Error(), file+" is neither a directory") || out != "" {
		t.Errorf("%v, on standard output %q", err, out)
	}
	if text, err := os.ReadFile(result); err != nil || !strings.Contains(string(text), "another run will not help") {
		t.Errorf("%v: the result is %q", err, text)
	}
}
