package backendtest

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Stored fails unless the JSON of a stored type has these fields. A release that does not know a field drops it when it writes
// what a newer one has stored: a field that protects data must come with a higher version, which older releases refuse.
func Stored(t *testing.T, v any, fields ...string) {
	t.Helper()
	found := namesIn("", reflect.TypeOf(v))
	slices.Sort(found)
	slices.Sort(fields)
	if !slices.Equal(found, fields) {
		t.Errorf("%T is stored with the fields %q, want %q: an older release drops a new field; if it protects data, raise the version", v, found, fields)
	}
}

func namesIn(prefix string, t reflect.Type) (names []string) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t.PkgPath() == "time" {
		return []string{prefix}
	}
	for f := range t.Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); f.IsExported() && name != "-" {
			names = append(names, namesIn(strings.TrimPrefix(prefix+"."+name, "."), f.Type)...)
		}
	}
	return names
}
