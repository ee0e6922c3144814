package deploy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Objects are objects by KIND NAMESPACE/NAME, or KIND NAME without a namespace.
type Objects map[string]*unstructured.Unstructured

// parse reads the objects of a manifest, in which no object may be twice, and no key of an object.
func parse(t *testing.T, manifest string) Objects {
	t.Helper()
	objects := Objects{}
	documents := yamlutil.NewYAMLReader(bufio.NewReader(strings.NewReader(manifest)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects
		}
		object := &unstructured.Unstructured{}
		if err := errors.Join(err, yaml.UnmarshalStrict(document, &object.Object)); err != nil {
			t.Fatalf("%v in:\n%s", err, document)
		}
		if len(object.Object) == 0 {
			continue
		}
		key := keyOf(object)
		if objects[key] != nil {
			t.Fatalf("%s is there twice", key)
		}
		objects[key] = object
	}
}

func keyOf(o *unstructured.Unstructured) string {
	if o.GetNamespace() == "" {
		return o.GetKind() + " " + o.GetName()
	}
	return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
}

// only is one of the objects.
func (o Objects) only(key string) Objects { return Objects{key: o[key]} }

// as is an object, or a part of one, as its type.
func as[T any](t *testing.T, object map[string]any) *T {
	t.Helper()
	typed := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, typed); err != nil {
		t.Fatal(err)
	}
	return typed
}

// compare fails the test for each difference of the objects from the desired ones.
func compare(t *testing.T, what string, want, got Objects) {
	t.Helper()
	for _, difference := range differences(want, got) {
		t.Errorf("%s: %s", what, difference)
	}
}

func differences(want, got Objects) (lines []string) {
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if got[key] == nil {
			lines = append(lines, key+" is missing")
			continue
		}
		for _, line := range differ("", want[key].Object, got[key].Object) {
			lines = append(lines, key+": "+line)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(got)) {
		if want[key] == nil {
			lines = append(lines, key+" should not be there")
		}
	}
	return lines
}

func differ(path string, want, got any) (lines []string) {
	wantFields, gotFields := fields(want), fields(got)
	if wantFields == nil || gotFields == nil {
		if !reflect.DeepEqual(want, got) {
			lines = []string{fmt.Sprintf("%s is %s, not %s", strings.TrimPrefix(path, "."), compact(got), compact(want))}
		}
		return lines
	}
	both := maps.Clone(wantFields)
	maps.Copy(both, gotFields)
	for _, key := range slices.Sorted(maps.Keys(both)) {
		lines = append(lines, differ(path+key, wantFields[key], gotFields[key])...)
	}
	return lines
}

// fields returns what a map or a list holds by its place, or nil for another value. The place of a list's element is
// its name where all have one, for then their order means nothing.
func fields(value any) map[string]any {
	out, named := map[string]any{}, map[string]any{}
	switch value := value.(type) {
	case map[string]any:
		for key, field := range value {
			out["."+key] = field
		}
		return out
	case []any:
		for i, element := range value {
			out[fmt.Sprintf("[%d]", i)] = element
			if fields, ok := element.(map[string]any); ok && fields["name"] != nil {
				named[fmt.Sprintf("[%v]", fields["name"])] = element
			}
		}
		if len(named) == len(value) {
			return named
		}
		return out
	}
	return nil
}

// compact is a value in one line if that is short, or that it is missing.
func compact(value any) string {
	if value == nil {
		return "missing"
	}
	text, err := yaml.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	if text = bytes.TrimSpace(text); bytes.Contains(text, []byte("\n")) {
		return "\n" + string(text) + "\n"
	}
	return string(text)
}

// lookup returns the value at a path, nil if there is none. A step into a list is into its first element.
func lookup(values map[string]any, path ...string) any {
	var at any = values
	for _, step := range path {
		if list, ok := at.([]any); ok && len(list) > 0 {
			at = list[0]
		}
		fields, _ := at.(map[string]any)
		at = fields[step]
	}
	return at
}
