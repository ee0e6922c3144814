package render

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/parameters"
)

// parametersPolicy refuses wrong parameters of classes.
const parametersPolicy = name + "-class-parameters"

// parameterClasses are the classes with parameters, as the policy names them: by provisioner, or by resource.
var parameterClasses = map[string]*parameters.Class{
	v1beta1.DriverName: &parameters.CSI, v1beta1.ProvisionerName: &parameters.Plain,
	"volumesnapshotclasses": &parameters.Snapshot, "volumegroupsnapshotclasses": &parameters.GroupSnapshot,
}

// setParameters writes the table of parameters into the policy about them.
func setParameters(objects []*unstructured.Unstructured) {
	for variable, expression := range map[string]func(*parameters.Class) string{
		"parameters": knownParameters,
		"hints":      func(c *parameters.Class) string { return celMap(c.AllHints(), strconv.Quote) },
		"allowed":    func(c *parameters.Class) string { return strconv.Quote(c.AllowedKeys()) },
	} {
		SetVariable(objects, parametersPolicy, variable, celMap(parameterClasses, expression))
	}
}

// knownParameters is the table of a class, whose keys are in lower case if their case does not matter.
func knownParameters(c *parameters.Class) string {
	written := func(text string) string { return text }
	if c.AnyCase {
		written = strings.ToLower
	}
	table := map[string]string{}
	for _, p := range c.Parameters {
		pattern, most := "", ""
		if p.Pattern != nil {
			pattern = p.Pattern.String()
		}
		if p.Max > 0 {
			most = strconv.FormatUint(p.Max, 10)
		}
		var row []string
		for _, text := range []string{pattern, most, p.Allowed, written(p.Needs), written(strings.Join(p.Never, ","))} {
			row = append(row, strconv.Quote(text))
		}
		table[written(p.Key)] = "[" + strings.Join(row, ", ") + "]"
	}
	return celMap(table, func(row string) string { return row })
}

// celMap is a map as an expression.
func celMap[V any](m map[string]V, value func(V) string) string {
	var entries []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		entries = append(entries, strconv.Quote(key)+": "+value(m[key]))
	}
	return "{" + strings.Join(entries, ", ") + "}"
}
