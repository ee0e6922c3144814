package lint

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/documents"
)

const repository = "../../.."

// mapped are the documents that say where things are.
var mapped = []string{"docs/architecture.md", "CONTRIBUTING.md"}

var (
	codeSpan     = regexp.MustCompile("`([^`\n]+)`")
	markdownLink = regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]+))?\)`)
	pathForm     = regexp.MustCompile(`^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*/?$`)
	// ofKubernetes are labels, annotations and resources, which look like paths.
	ofKubernetes = regexp.MustCompile(`^[a-z0-9.-]*\.(dev|io)(/|$)`)
)

func TestMap_EveryPathThatIsNamedExists(t *testing.T) {
	for _, document := range mapped {
		named := pathsIn(read(t, document))
		for _, path := range named {
			if _, err := os.Stat(filepath.Join(repository, path)); err != nil {
				t.Errorf("%s names %s, which does not exist: %v", document, path, err)
			}
		}
		if len(named) < 20 {
			t.Errorf("only %d paths were found in %s", len(named), document)
		}
	}
}

func TestMap_EveryLinkBetweenDocumentsLeadsSomewhere(t *testing.T) {
	pages := append(glob(t, "*.md"), glob(t, "docs/*.md")...)
	for _, document := range pages {
		dir := filepath.Dir(document)
		for _, link := range markdownLink.FindAllStringSubmatch(read(t, document), -1) {
			if strings.Contains(link[1], "://") {
				continue
			}
			target := document
			if link[1] != "" {
				target = filepath.Join(dir, link[1])
			}
			if _, err := os.Stat(filepath.Join(repository, target)); err != nil {
				t.Errorf("%s links to %s, which does not exist", document, link[1])
			} else if link[2] != "" && !slices.Contains(documents.Anchors(read(t, target)), link[2]) {
				t.Errorf("%s links to #%s of %s, which is no heading there", document, link[2], target)
			}
		}
	}
}

func TestMap_TheIndexHasEveryPage(t *testing.T) {
	index := read(t, "docs/README.md")
	for _, page := range glob(t, "docs/*.md") {
		if name := filepath.Base(page); name != "README.md" && !strings.Contains(index, "]("+name+")") {
			t.Errorf("docs/README.md does not list %s", page)
		}
	}
}

// pathsIn returns the paths of this repository that a text names: what has a slash or the name of a source file.
func pathsIn(text string) (paths []string) {
	for _, span := range codeSpan.FindAllStringSubmatch(text, -1) {
		path := strings.TrimPrefix(span[1], "./")
		isPath := strings.Contains(span[1], "/") || strings.HasSuffix(path, ".go") || strings.HasSuffix(path, ".yml") || strings.HasSuffix(path, ".md")
		ofPool := strings.HasPrefix(path, "volumes/") // of a pool, and not of the repository
		if isPath && !ofPool && pathForm.MatchString(path) && !ofKubernetes.MatchString(path) && strings.ToUpper(path) != path {
			paths = append(paths, path)
		}
	}
	return paths
}

func read(t *testing.T, path string) string {
	t.Helper()
	text := check.Got(os.ReadFile(filepath.Join(repository, path)))(t)
	return string(text)
}

// glob returns paths relative to the repository.
func glob(t *testing.T, pattern string) (paths []string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(repository, pattern))
	if err != nil || len(found) == 0 {
		t.Fatalf("nothing is like %s: %v", pattern, err)
	}
	for _, path := range found {
		relative := check.Got(filepath.Rel(repository, path))(t)
		paths = append(paths, relative)
	}
	return paths
}
