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
	file := filepath.Join(dir, "file")
	check.OK(t, os.WriteFile(file, nil, 0o600))
	result := filepath.Join(dir, "result")
	for name, test := range map[string]struct {
		args  []string
		usage bool
		want  string
	}{
		"no source":   {[]string{"--to", dir}, true, "--from is missing"},
		"no target":   {[]string{"--from", dir}, true, "--to is missing"},
		"no interval": {[]string{"--from", dir, "--to", dir, "--every", "0s"}, true, "--every 0s"},
		"a file":      {[]string{"--from", file, "--to", dir, "--result", result}, false, file + " is neither a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := call(t, append([]string{"copy"}, test.args...)...)
			want := protocol.FinalExit
			if test.usage {
				want = 2
			}
			if exitCode(err) != want || errors.Is(err, errUsage) != test.usage || !strings.Contains(err.Error(), test.want) || out != "" {
				t.Errorf("%v, on standard output %q", err, out)
			}
		})
	}
	if text, err := os.ReadFile(result); err != nil || !strings.Contains(string(text), "another run will not help") {
		t.Errorf("%v: the result is %q", err, text)
	}
}
