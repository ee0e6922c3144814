package render

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

var update = flag.Bool("update", false, "write the golden files")

// TestGolden_EachSpecRendersItsObjects compares with testdata/specs.txt: what is rendered of a StorageCluster without a spec,
// and then, for each spec, what it adds (+) and takes away (-). go test -update writes the file; read what it changes.
func TestGolden_EachSpecRendersItsObjects(t *testing.T) {
	const file = "testdata/specs.txt"
	golden := check.Got(os.ReadFile(file))(t)
	var written strings.Builder
	usual := map[value]bool{}
	sections := strings.Split(string(golden), "\n== ")
	written.WriteString(sections[0])
	if len(sections) < 2 {
		t.Fatal("the golden file has no spec")
	}
	for i, section := range sections[1:] {
		name, rest, _ := strings.Cut(section, "\n")
		spec, want, _ := strings.Cut(rest, "--\n")
		in := everything()
		in.Cluster.Spec = ask(nil).Cluster.Spec
		if err := yaml.UnmarshalStrict([]byte(spec), &in.Cluster.Spec); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		has := map[value]bool{}
		for _, o := range rendered(t, in) {
			flatten(has, o)
		}
		if i == 0 {
			usual = has
		}
		got := changes(usual, has, i == 0)
		fmt.Fprintf(&written, "\n== %s\n%s--\n%s", name, spec, got)
		if strings.TrimSpace(got) != strings.TrimSpace(want) && !*update {
			t.Errorf("%s: rendered is\n%s\nwant\n%s", name, got, want)
		}
	}
	if *update {
		check.OK(t, os.WriteFile(file, []byte(written.String()), 0o600))
	}
}

// changes are the lines that only one of two sets has, below the object that they are of. Of the first set all are listed,
// and of an object that is gone only that it is.
func changes(before, after map[value]bool, first bool) string {
	signs := map[value]string{}
	for v := range before {
		if !after[v] && (v.path == "" || after[value{object: v.object}]) {
			signs[v] = "-"
		}
	}
	for v := range after {
		if !before[v] || first {
			signs[v] = "+"
		}
	}
	var text strings.Builder
	object := ""
	for _, v := range slices.SortedFunc(maps.Keys(signs), value.compare) {
		if v.path == "" {
			fmt.Fprintf(&text, "%s %s\n", signs[v], v.object)
		} else {
			if v.object != object && signs[value{object: v.object}] == "" {
				fmt.Fprintf(&text, "  %s\n", v.object)
			}
			fmt.Fprintf(&text, "%s   %s: %s\n", signs[v], v.path, v.text)
		}
		object = v.object
	}
	return text.String()
}

// value is one of an object, by its path. That an object is there has no path.
type value struct{ object, path, text string }

func (v value) compare(other value) int {
	return cmp.Or(strings.Compare(v.object, other.object), strings.Compare(v.path, other.path), strings.Compare(v.text, other.text))
}

// flatten adds the values of an object. The labels and owners of objects have tests of their own, and so have the policies
// and the rules of roles, which are files in deploy.
func flatten(values map[value]bool, o *unstructured.Unstructured) {
	if strings.HasPrefix(o.GetKind(), "ValidatingAdmissionPolicy") {
		return
	}
	object := o.GetKind() + " " + o.GetName()
	values[value{object: object}] = true
	if strings.HasSuffix(o.GetKind(), "Role") {
		return
	}
	for key, annotation := range o.GetAnnotations() {
		values[value{object, "annotation " + key, annotation}] = true
	}
	for field, content := range o.Object {
		if !slices.Contains([]string{"apiVersion", "kind", "metadata"}, field) {
			addValues(values, object, field, content)
		}
	}
}

// addValues names the elements of a list by their name if they have one; the order of words means nothing.
func addValues(values map[value]bool, object, path string, content any) {
	path = strings.Replace(path, "spec.template.spec.", "pod ", 1)
	fields, isMap := content.(map[string]any)
	list, isList := content.([]any)
	switch {
	case isMap && len(fields) > 0:
		for field, inner := range fields {
			if field != "name" || !strings.HasSuffix(path, "["+fmt.Sprint(inner)+"]") {
				addValues(values, object, path+"."+field, inner)
			}
		}
	case isList && len(list) > 0:
		for i, element := range list {
			at := fmt.Sprintf("[%d]", i)
			fields, isMap := element.(map[string]any)
			name, isNamed := fields["name"].(string)
			switch {
			case isNamed && len(fields) > 1:
				at = "[" + name + "]"
			case isNamed:
				at, element = "[]", name
			case !isMap:
				at = "[]"
			}
			addValues(values, object, path+at, element)
		}
	case !strings.HasSuffix(path, configHash):
		values[value{object, path, fmt.Sprint(content)}] = true
	}
}
