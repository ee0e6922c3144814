package deploy

import (
	"strings"
	"testing"
)

func TestDifferences_AreNamedByTheirPath(t *testing.T) {
	const object = "kind: A\nmetadata: {name: a}\nspec: {list: [1, 2], named: [{name: p, at: 1}, {name: q, at: 2}], field: x}\n"
	for name, c := range map[string]struct{ old, changed, want string }{
		"nothing":                {"", "", ""},
		"another value":          {"field: x", "field: z", "A a: spec.field is z, not x"},
		"a field less":           {", field: x", "", "A a: spec.field is missing, not x"},
		"a field more":           {"field: x", "field: x, more: 1", "A a: spec.more is 1, not missing"},
		"another element":        {"[1, 2]", "[1, 3]", "A a: spec.list[1] is 3, not 2"},
		"an element more":        {"[1, 2]", "[1, 2, 3]", "A a: spec.list[2] is 3, not missing"},
		"elements in any order":  {"{name: p, at: 1}, {name: q, at: 2}", "{name: q, at: 2}, {name: p, at: 1}", ""},
		"another named element":  {"at: 2", "at: 3", "A a: spec.named[q].at is 3, not 2"},
		"a list that is no list": {"[1, 2]", "none", "A a: spec.list is none, not \n- 1\n- 2\n"},
		"another name":           {"{name: a}", "{name: b}", "A a is missing\nA b should not be there"},
	} {
		t.Run(name, func(t *testing.T) {
			want, wantErr := Parse([]byte(object))
			got, gotErr := Parse([]byte(strings.Replace(object, c.old, c.changed, 1)))
			if wantErr != nil || gotErr != nil {
				t.Fatal(wantErr, gotErr)
			}
			if lines := strings.Join(Differences(want, got), "\n"); lines != c.want {
				t.Errorf("got %q, want %q", lines, c.want)
			}
		})
	}
}

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
