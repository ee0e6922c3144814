package main

import (
	"os"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/standalone"
)

func TestMain(m *testing.M) { os.Exit(hostfs.Main(m)) }

func TestDemo_EndsWithoutError(t *testing.T) {
	hostfs.RequireRoot(t)
	binary := check.Got(standalone.Binary(t.Context(), t.TempDir()))(t)
	var out strings.Builder
	if err := run(t.Context(), binary, &out); err != nil {
		t.Fatalf("%v; it printed:\n%s", err, out.String())
	}
	if !strings.Contains(out.String(), "see that the pool is empty") {
		t.Errorf("it ended early:\n%s", out.String())
	}
}
