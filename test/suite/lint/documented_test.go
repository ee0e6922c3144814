package lint

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// Each mistake of docs/reliability.md is shown by a test, and each test of such a mistake is listed there.
func TestReliability_EachTestOfTheListExists(t *testing.T) {
	list, err := os.ReadFile("../../../docs/reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, match := range regexp.MustCompile("`(Test[A-Za-z0-9_]+)([^`]*)`").FindAllSubmatch(list, -1) {
		listed[string(match[1])] = true
		if len(match[2]) > 0 {
			t.Errorf("%s is not the whole name of a test", match[0])
		}
	}
	files, err := filepath.Glob("../e2e/accidents/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, "../../../backend/ceph/rbd/lost_test.go")
	there := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range regexp.MustCompile(`(?m)^func (Test[A-Z][A-Za-z0-9_]*_[A-Za-z0-9_]+)\(`).FindAllSubmatch(text, -1) {
			there[string(match[1])] = true
		}
	}
	for name := range listed {
		if !there[name] {
			t.Errorf("docs/reliability.md names %s, which does not exist", name)
		}
	}
	for name := range there {
		if !listed[name] {
			t.Errorf("docs/reliability.md does not list %s", name)
		}
	}
	if len(listed) < 15 {
		t.Errorf("only %d tests are named", len(listed))
	}
}
