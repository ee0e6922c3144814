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

// each visits a schema, and those of its fields and items, with what leads to them.
func each(at string, schema map[string]any, visit func(at string, schema map[string]any)) {
	visit(at, schema)
	properties, _ := schema["properties"].(map[string]any)
	for name, property := range properties {
		each(at+"."+name, property.(map[string]any), visit)
	}
	for _, of := range []string{"items", "additionalProperties"} {
		if items, ok := schema[of].(map[string]any); ok {
			each(at+"[]", items, visit)
		}
	}
}

var (
	// explainedWord is a word of a description, a name of several parts as one.
	explainedWord = regexp.MustCompile(`[A-Za-z]+(\.[A-Za-z]+)*`)
	severalWords  = regexp.MustCompile(`^[A-Z][a-z]+[A-Z]`) // in one, as no word of English has them
	pathInGo      = regexp.MustCompile(`^[A-Z][a-z]+[A-Za-z]*\.[A-Z][a-z]+`)
)

// ofTheAPIServer are fields that the API server describes, whatever the definition of a kind says.
var ofTheAPIServer = []string{"apiVersion", "kind", "metadata"}

// kubectl explain shows people descriptions, which are the comments of Go code.
func TestExplain_ShowsNoNamesOfGo(t *testing.T) {
	names := &goNames{types: map[string]bool{}, fields: map[string]bool{}, seen: map[reflect.Type]bool{}}
	for _, object := range []any{
		v1beta1.StorageCluster{}, v1beta1.StorageUpgrade{}, v1beta1.NodeJob{}, v1beta1.NFSServer{}, v1beta1.Volume{}, v1beta1.Snapshot{}, v1beta1.StorageNode{},
	} {
		names.add(reflect.TypeOf(object))
	}
	kinds, described := customKinds(t), 0
	known := map[string]bool{"StorageClass": true} // names of kinds, and values of fields
	for name, kind := range kinds {
		known[name] = true
		each(kind.Kind, kind.Schema, func(_ string, schema map[string]any) {
			values, _ := schema["enum"].([]any)
			for _, value := range values {
				if text, is := value.(string); is {
					known[text] = true
				}
			}
		})
	}
	for name, kind := range kinds {
		if name != kind.Kind || kind.APIVersion != v1beta1.SchemeGroupVersion.String() {
			continue
		}
		each(name, kind.Schema, func(at string, schema map[string]any) {
			_, field, _ := strings.Cut(at, ".")
			text, _ := schema["description"].(string)
			if text == "" || slices.Contains(ofTheAPIServer, field) {
				return
			}
			described++
			for i, word := range explainedWord.FindAllString(text, -1) {
				several := severalWords.MatchString(word)
				ofGo := names.types[word] && (several || i == 0 && strings.HasSuffix(at, "[]")) || names.fields[word] && several
				if pathInGo.MatchString(word) || ofGo && !known[word] {
					t.Errorf("%s: %q is a name of Go in %q", at, word, text)
				}
			}
		})
	}
	if described < 500 {
		t.Errorf("only %d descriptions were read", described)
	}
}
