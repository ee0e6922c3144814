package deploy

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Differences lists the differences of the objects from the desired ones, one per line.
func Differences(want, got Objects) (lines []string) {
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if got[key] == nil {
			lines = append(lines, key+" is missing")
			continue
		}
		for _, line := range differences("", want[key].Object, got[key].Object) {
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

func differences(path string, want, got any) []string {
	wantFields, gotFields := fields(want), fields(got)
	if wantFields == nil || gotFields == nil {
		if reflect.DeepEqual(want, got) {
			return nil
		}
		return []string{fmt.Sprintf("%s is %s, not %s", strings.TrimPrefix(path, "."), compact(got), compact(want))}
	}
	both := maps.Clone(wantFields)
	maps.Copy(both, gotFields)
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(both)) {
		lines = append(lines, differences(path+key, wantFields[key], gotFields[key])...)
	}
	return lines
}

// fields returns what a map or a list holds by its place, or nil for another value. The place of a list's element is
// its name where all have one, for then their order means nothing.
func fields(value any) map[string]any {
	out := map[string]any{}
	switch value := value.(type) {
	case map[string]any:
		for key, field := range value {
			out["."+key] = field
		}
	case []any:
		for i, element := range value {
			out[fmt.Sprintf("[%d]", i)] = element
		}
		named := map[string]any{}
		for _, element := range value {
			if fields, ok := element.(map[string]any); ok && fields["name"] != nil {
				named[fmt.Sprintf("[%v]", fields["name"])] = element
			}
		}
		if len(named) == len(value) {
			return named
		}
	default:
		return nil
	}
	return out
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
