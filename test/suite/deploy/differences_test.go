package deploy

import "testing"

func TestDifferences_ManifestWithDuplicatesIsRefused(t *testing.T) {
	for _, manifest := range []string{
		"kind: A\nmetadata: {name: a}\n---\nkind: A\nmetadata: {name: a}\n",
		"kind: A\nmetadata: {name: a, name: a}\n",
	} {
		if _, err := Parse([]byte(manifest)); err == nil {
			t.Errorf("%q was taken", manifest)
		}
	}
}
