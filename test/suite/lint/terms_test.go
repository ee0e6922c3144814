package lint

import (
	"regexp"
	"testing"
)

var (
	// notProse is code, headings, rows of tables and links of a page.
	notProse   = regexp.MustCompile("(?ms)^```.*?^```|^(?: {4}|#|\\|)[^\n]*|`[^`\n]*`|\\[[^\\]\n]*\\]\\([^)\n]*\\)")
	firstClaim = regexp.MustCompile(`\b[Cc]laims?\b( \(PVCs?\))?`)
)

// Readers search a page for the word of Kubernetes.
func TestDocuments_SayPVCWhereTheyFirstSayClaim(t *testing.T) {
	said := 0
	for _, file := range append(glob(t, "docs/*.md"), "README.md") {
		found := firstClaim.FindStringSubmatch(notProse.ReplaceAllString(read(t, file), ""))
		switch {
		case found == nil:
		case found[1] == "":
			t.Errorf("%s: write %s (PVC) where the word stands first", file, found[0])
		default:
			said++
		}
	}
	if said < 20 {
		t.Errorf("only %d pages speak of claims", said)
	}
}
