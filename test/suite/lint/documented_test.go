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

// TestDocuments_NameTestsThatExist: a name that ends with _ is that of all tests that begin with it.
func TestDocuments_NameTestsThatExist(t *testing.T) {
	const root = "../../.."
	named, there := map[string]string{}, "\n"
	check.OK(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		isTest, isDocument := strings.HasSuffix(path, "_test.go"), strings.HasSuffix(path, ".md")
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root || d.Name() == "bin":
			return fs.SkipDir
		case !isTest && !isDocument:
			return nil
		}
		text, err := os.ReadFile(path)
		if isDocument {
			for _, match := range regexp.MustCompile("`(Test[A-Z][A-Za-z0-9]*_[A-Za-z0-9_]*)`").FindAllSubmatch(text, -1) {
				named[string(match[1])] = path
			}
			return err
		}
		for _, match := range regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9_]+)\(`).FindAllSubmatch(text, -1) {
			there += string(match[1]) + "\n"
		}
		return err
	}))
	for name, path := range named {
		end := "\n"
		if strings.HasSuffix(name, "_") {
			end = ""
		}
		if !strings.Contains(there, "\n"+name+end) {
			t.Errorf("%s names %s, which does not exist", path, name)
		}
	}
	if len(named) < 40 {
		t.Errorf("only %d tests are named", len(named))
	}
}

// Each test of a mistake is listed in docs/reliability.md. That what is listed exists is TestDocuments_NameTestsThatExist.
func TestReliability_ListsEachTestOfAMistake(t *testing.T) {
	list := check.Got(os.ReadFile("../../../docs/reliability.md"))(t)
	listed := map[string]bool{}
	for _, match := range regexp.MustCompile("`(Test[A-Za-z0-9_]+)([^`]*)`").FindAllSubmatch(list, -1) {
		listed[string(match[1])] = true
		if len(match[2]) > 0 {
			t.Errorf("%s is not the whole name of a test", match[0])
		}
	}
	files := check.Got(filepath.Glob("../e2e/accidents/*_test.go"))(t)
	files = append(files, "../../../backend/ceph/rbd/lost_test.go")
	there := map[string]bool{}
	for _, file := range files {
		text := check.Got(os.ReadFile(file))(t)
		for _, match := range regexp.MustCompile(`(?m)^func (Test[A-Z][A-Za-z0-9_]*_[A-Za-z0-9_]+)\(`).FindAllSubmatch(text, -1) {
			there[string(match[1])] = true
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
