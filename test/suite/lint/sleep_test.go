package lint

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

var (
	// sleep is a statement that does nothing but wait for a time: time.Sleep, which the linter refuses, by another name.
	sleep = regexp.MustCompile(`(?m)^\s*<-time\.After\(`)
	// round is a limit that starts again in each round of a loop.
	round = regexp.MustCompile(`(?m)^\s*for[^\n]*\{\n\s*select \{\n(?:\s*case [^\n]*\n[^\n]*\n)*?\s*case <-time\.After\(`)
)

// In a bubble of synctest time is not waited for.
func TestSleep_NoTestWaitsOnTimeAfter(t *testing.T) {
	check.OK(t, filepath.WalkDir(repository, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "bin"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		source, err := os.ReadFile(path)
		if sleep.Match(source) && !strings.Contains(string(source), "synctest.Test(") {
			t.Errorf("%s: <-time.After is a sleep here; wait for the event, or look for it with a ticker", path)
		}
		if strings.HasSuffix(path, "_test.go") && round.Match(source) {
			t.Errorf("%s: time.After starts again in each round; wait for the event, look for it with a ticker, or make the limit before the loop", path)
		}
		return err
	}))
}
