package lint

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// goNames are the names in Go of what the kinds consist of.
type goNames struct {
	types  map[string]bool
	fields map[string]bool // whose name in an object is another one
	values map[string]bool // which objects have, and are spelled alike
	seen   map[reflect.Type]bool
}

func (n *goNames) add(of reflect.Type) {
	if n.seen[of] {
		return
	}
	n.seen[of] = true
	if of.PkgPath() != "" {
		n.types[of.Name()] = true
	}
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		n.add(of.Elem())
	case reflect.Struct:
		for field := range of.Fields() {
			if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" && name != field.Name {
				n.fields[field.Name] = true
			}
			n.add(field.Type)
		}
	}
}

// addValues adds what enums of a schema allow.
func (n *goNames) addValues(schema map[string]any) {
	values, _ := schema["enum"].([]any)
	for _, value := range values {
		if value, ok := value.(string); ok {
			n.values[value] = true
		}
	}
	for _, part := range parts(schema) {
		n.addValues(part)
	}
}

// parts are the schemas of the fields or items of a schema, by what leads to them.
func parts(schema map[string]any) map[string]map[string]any {
	all := map[string]map[string]any{}
	properties, _ := schema["properties"].(map[string]any)
	for name, property := range properties {
		all["."+name], _ = property.(map[string]any)
	}
	for _, of := range []string{"items", "additionalProperties"} {
		if items, ok := schema[of].(map[string]any); ok {
			all["[]"] = items
		}
	}
	return all
}

// explainedWord is a word of a description, a name of several parts as one.
var explainedWord = regexp.MustCompile(`[A-Za-z]+(\.[A-Za-z]+)*`)

// ofTheAPIServer are fields that the API server describes, whatever the definition of a kind says.
var ofTheAPIServer = []string{".apiVersion", ".kind", ".metadata"}

// kubectl explain shows people descriptions, which are the comments of Go code.
func TestExplain_ShowsNoNamesOfGo(t *testing.T) {
	names := &goNames{types: map[string]bool{}, fields: map[string]bool{}, values: map[string]bool{}, seen: map[reflect.Type]bool{}}
	for _, object := range []any{
		v1beta1.StorageCluster{}, v1beta1.StorageUpgrade{}, v1beta1.NodeJob{}, v1beta1.NFSServer{}, v1beta1.Volume{}, v1beta1.Snapshot{}, v1beta1.StorageNode{},
	} {
		names.add(reflect.TypeOf(object))
	}
	kinds, described := customKinds(t), 0
	isName := func(word string) bool { // of a kind, or a value of a field
		_, kind := kinds[word]
		return kind || word == "StorageClass" || names.values[word]
	}
	several := regexp.MustCompile(`^[A-Z][a-z]+[A-Z]`) // words, as no word of English has
	path := regexp.MustCompile(`^[A-Z][a-z]+[A-Za-z]*\.[A-Z][a-z]+`)
	var look func(at string, schema map[string]any)
	look = func(at string, schema map[string]any) {
		_, field, _ := strings.Cut(at, ".")
		text, _ := schema["description"].(string)
		if text != "" && !slices.Contains(ofTheAPIServer, "."+field) {
			described++
			for i, word := range explainedWord.FindAllString(text, -1) {
				ofGo := names.types[word] && (i == 0 && strings.HasSuffix(at, "[]") || several.MatchString(word)) || names.fields[word] && several.MatchString(word)
				if path.MatchString(word) || ofGo && !isName(word) {
					t.Errorf("%s: %q is a name of Go in %q", at, word, text)
				}
			}
		}
		for step, part := range parts(schema) {
			look(at+step, part)
		}
	}
	for _, kind := range kinds {
		names.addValues(kind.Schema)
	}
	for name, kind := range kinds {
		if name == kind.Kind && kind.APIVersion == v1beta1.SchemeGroupVersion.String() {
			look(kind.Kind, kind.Schema)
		}
	}
	if described < 500 {
		t.Errorf("only %d descriptions were read", described)
	}
}
