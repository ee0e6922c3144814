package documents

import (
	"slices"
	"testing"
)

func TestAnchors_AreThoseOfGitHub(t *testing.T) {
	page := "# Größe, `limit` and more\n\ntext # no heading\n\n## /livez and /readyz\n"
	if got, want := Anchors(page), []string{"größe-limit-and-more", "livez-and-readyz"}; !slices.Equal(got, want) {
		t.Errorf("the anchors are %q, not %q", got, want)
	}
}
