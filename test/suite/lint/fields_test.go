package lint

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// fieldPattern finds a field that a page names, as in `spec.pools[].path: /srv`; cluster is that of the chart.
var fieldPattern = regexp.MustCompile("`(spec|status|cluster)((?:\\.[A-Za-z]+(?:\\[\\])?)+)[`: ={]")

// kubernetesFields are fields of its own kinds that pages name.
var kubernetesFields = []string{"spec.nodeName", "spec.nodeAffinity", "spec.podCIDRs", "status.hostIP"}

// hasField says whether a schema has a field.
func hasField(schema map[string]any, path []string) bool {
	if items, is := schema["items"].(map[string]any); is {
		return hasField(items, path)
	}
	if len(path) == 0 || schema["x-kubernetes-preserve-unknown-fields"] == true {
		return true
	}
	properties, _ := schema["properties"].(map[string]any)
	if next, is := properties[path[0]].(map[string]any); is {
		return hasField(next, path[1:])
	}
	other, open := schema["additionalProperties"].(map[string]any)
	return open && hasField(other, path[1:])
}

// unknownFields are those that a page names and no kind has, and how many it names.
func unknownFields(kinds map[string]custom, page string) (unknown []string, named int) {
	for _, found := range fieldPattern.FindAllStringSubmatch(page, -1) {
		top, path := found[1], strings.Split(strings.ReplaceAll(found[2], "[]", ""), ".")[1:]
		name := top + "." + strings.Join(path, ".")
		named++
		known := slices.Contains(kubernetesFields, name)
		for kind, has := range kinds {
			switch {
			case top == "cluster" && kind == "StorageCluster":
				known = known || hasField(has.Schema, append([]string{"spec"}, path...))
			case top != "cluster":
				known = known || hasField(has.Schema, append([]string{top}, path...))
			}
		}
		if !known {
			unknown = append(unknown, name)
		}
	}
	return unknown, named
}

func TestDocuments_NameFieldsThatExist(t *testing.T) {
	all, kinds := 0, customKinds(t)
	for _, file := range append(glob(t, "docs/*.md"), "README.md") {
		unknown, named := unknownFields(kinds, read(t, file))
		all += named
		if len(unknown) > 0 {
			t.Errorf("%s names %q, which no kind has", filepath.Base(file), unknown)
		}
	}
	if all < 150 {
		t.Errorf("%d fields are found in the documents: is the pattern still right?", all)
	}
	if unknown, _ := unknownFields(kinds, "`spec.disableMonitoring` and `cluster.priorityClass: high`, `spec.pools[].path`"); len(unknown) != 2 {
		t.Errorf("of three fields, two of which are none, it refuses %q", unknown)
	}
}
