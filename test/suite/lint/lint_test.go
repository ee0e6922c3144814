// Package lint proves what no linter looks at: that documents and workflows name what exists, and that what several modules of
// this repository share is of one version.
package lint

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

const repository = "../../.."

var codeSpan = regexp.MustCompile("`([^`\n]+)`")

func read(t *testing.T, path string) string {
	t.Helper()
	return string(check.Got(os.ReadFile(filepath.Join(repository, path)))(t))
}

func exists(path string) bool {
	_, err := os.Stat(filepath.Join(repository, path))
	return err == nil
}

// glob returns paths relative to the repository.
func glob(t *testing.T, pattern string) (paths []string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(repository, pattern))
	if err != nil || len(found) == 0 {
		t.Fatalf("nothing is like %s: %v", pattern, err)
	}
	for _, path := range found {
		paths = append(paths, check.Got(filepath.Rel(repository, path))(t))
	}
	return paths
}

// pages are those of the documentation for users and for those who change Holdfast.
func pages(t *testing.T) []string {
	t.Helper()
	return append(glob(t, "docs/*.md"), "README.md")
}

// files are all of the repository that have an extension, but for what is built.
func files(t *testing.T, extension string) (paths []string) {
	t.Helper()
	check.OK(t, filepath.WalkDir(repository, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", "bin"}, d.Name()):
			return fs.SkipDir
		case !d.IsDir() && filepath.Ext(path) == extension:
			paths = append(paths, check.Got(filepath.Rel(repository, path))(t))
		}
		return nil
	}))
	return paths
}
