package lint

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/documents"
)

// mapped are the documents that say where things are.
var mapped = []string{"docs/architecture.md", "CONTRIBUTING.md"}

var (
	markdownLink = regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]+))?\)`)
	pathForm     = regexp.MustCompile(`^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*/?$`)
	// ofKubernetes are labels, annotations and resources, which look like paths.
	ofKubernetes = regexp.MustCompile(`^[a-z0-9.-]*\.(dev|io)(/|$)`)
)

// pathsIn returns the paths of this repository that a text names: what has a slash or the name of a source file.
func pathsIn(text string) (paths []string) {
	for _, span := range codeSpan.FindAllStringSubmatch(text, -1) {
		path := strings.TrimPrefix(span[1], "./")
		isPath := strings.Contains(span[1], "/") || slices.Contains([]string{".go", ".yml", ".md"}, filepath.Ext(path))
		ofPool := strings.HasPrefix(path, "volumes/") // of a pool, and not of the repository
		if isPath && !ofPool && pathForm.MatchString(path) && !ofKubernetes.MatchString(path) && strings.ToUpper(path) != path {
			paths = append(paths, path)
		}
	}
	return paths
}

func TestMap_EveryPathThatIsNamedExists(t *testing.T) {
	for _, document := range mapped {
		named := pathsIn(read(t, document))
		for _, path := range named {
			if !exists(path) {
				t.Errorf("%s names %s, which does not exist", document, path)
			}
		}
		if len(named) < 20 {
			t.Errorf("only %d paths were found in %s", len(named), document)
		}
	}
}

func TestMap_EveryLinkBetweenDocumentsLeadsSomewhere(t *testing.T) {
	for _, document := range append(glob(t, "*.md"), glob(t, "docs/*.md")...) {
		for _, link := range markdownLink.FindAllStringSubmatch(read(t, document), -1) {
			target := document
			if link[1] != "" {
				target = filepath.Join(filepath.Dir(document), link[1])
			}
			switch {
			case strings.Contains(link[1], "://"):
			case !exists(target):
				t.Errorf("%s links to %s, which does not exist", document, link[1])
			case link[2] != "" && !slices.Contains(documents.Anchors(read(t, target)), link[2]):
				t.Errorf("%s links to #%s of %s, which is no heading there", document, link[2], target)
			}
		}
	}
}

func TestMap_TheIndexHasEveryPage(t *testing.T) {
	index := read(t, "docs/README.md")
	if !strings.Contains(read(t, "README.md"), "](docs/README.md)") {
		t.Error("README.md does not lead to docs/README.md")
	}
	for _, page := range glob(t, "docs/*.md") {
		if name := filepath.Base(page); name != "README.md" && !strings.Contains(index, "]("+name+")") {
			t.Errorf("docs/README.md does not list %s", page)
		}
	}
}

// tests are the names of the tests in files.
func tests(t *testing.T, files []string) map[string]bool {
	t.Helper()
	there := map[string]bool{}
	for _, file := range files {
		for _, match := range regexp.MustCompile(`(?m)^func (Test[A-Z][A-Za-z0-9]*_[A-Za-z0-9_]+)\(`).FindAllStringSubmatch(read(t, file), -1) {
			there[match[1]] = true
		}
	}
	return there
}

// A name that ends with _ is that of all tests that begin with it.
func TestDocuments_NameTestsThatExist(t *testing.T) {
	there, named := tests(t, files(t, ".go")), 0
	for _, page := range files(t, ".md") {
		for _, match := range regexp.MustCompile("`(Test[A-Z][A-Za-z0-9]*_[A-Za-z0-9_]*)`").FindAllStringSubmatch(read(t, page), -1) {
			named++
			group := func(test string) bool { return strings.HasSuffix(match[1], "_") && strings.HasPrefix(test, match[1]) }
			if !there[match[1]] && !slices.ContainsFunc(slices.Collect(maps.Keys(there)), group) {
				t.Errorf("%s names %s, which does not exist", page, match[1])
			}
		}
	}
	if named < 40 {
		t.Errorf("only %d tests are named", named)
	}
}

// Each test of a mistake is listed in docs/reliability.md. That what is listed exists is TestDocuments_NameTestsThatExist.
func TestReliability_ListsEachTestOfAMistake(t *testing.T) {
	listed := map[string]bool{}
	for _, match := range regexp.MustCompile("`(Test[A-Za-z0-9_]+)([^`]*)`").FindAllStringSubmatch(read(t, "docs/reliability.md"), -1) {
		listed[match[1]] = true
		if match[2] != "" {
			t.Errorf("%s is not the whole name of a test", match[0])
		}
	}
	for name := range tests(t, append(glob(t, "test/suite/e2e/accidents/*_test.go"), "backend/ceph/rbd/lost_test.go")) {
		if !listed[name] {
			t.Errorf("docs/reliability.md does not list %s", name)
		}
	}
	if len(listed) < 15 {
		t.Errorf("only %d tests are named", len(listed))
	}
}
