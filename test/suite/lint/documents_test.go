package lint

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/parameters"
)

var (
	// notProse is code, headings, rows of tables and links of a page.
	notProse   = regexp.MustCompile("(?ms)^```.*?^```|^(?: {4}|#|\\|)[^\n]*|`[^`\n]*`|\\[[^\\]\n]*\\]\\([^)\n]*\\)")
	firstClaim = regexp.MustCompile(`\b[Cc]laims?\b( \(PVCs?\))?`)
)

// Readers search a page for the word of Kubernetes.
func TestDocuments_SayPVCWhereTheyFirstSayClaim(t *testing.T) {
	said := 0
	for _, file := range pages(t) {
		found := firstClaim.FindStringSubmatch(notProse.ReplaceAllString(read(t, file), ""))
		if found == nil {
			continue
		}
		if said++; found[1] == "" {
			t.Errorf("%s: write %s (PVC) where the word stands first", file, found[0])
		}
	}
	if said < 20 {
		t.Errorf("only %d pages speak of claims", said)
	}
}

func TestREADME_NamesEachParameterOfAStorageClass(t *testing.T) {
	_, section, _ := strings.Cut(read(t, "README.md"), "\n## Parameters\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var named []string
	for _, span := range codeSpan.FindAllStringSubmatch(section, -1) {
		named = append(named, span[1])
	}
	slices.Sort(named)
	want := slices.DeleteFunc(parameters.CSI.Keys(), func(key string) bool { return strings.HasSuffix(key, "/...") })
	if !slices.Equal(named, want) {
		t.Errorf("it names %v, and there are %v", named, want)
	}
}

// well are conditions and reasons that report nothing that a user looks up.
var well = []string{
	"Available", "Complete", "Healthy", "InPlace", "PoliciesInPlace", "Progressing", "JobCompleted", "UpgradeComplete",
	"Waiting", // for another upgrade
	"Ready", "Restored", "RollingOut", "Serving", "UpToDate", "Growing",
}

// sources are the files that have the words of conditions and events.
var sources = []string{
	"api/v1beta1/names.go", "api/v1beta1/shared.go", "operator/cluster/status.go", "operator/cluster/protection.go", "operator/cluster/inline.go",
	"operator/nfsserver/status.go", "operator/nodejob/conclude.go", "operator/upgrade/plan.go", "kube/apply/stranger.go",
}

var wordOfTrouble = regexp.MustCompile(`(?m)^\s*(?:const )?(?:[Rr]eason\w+|\w+Condition|Phase\w+ Phase|Error\w+ ErrorCode)\s*= "(\w+)"`)

func TestTroubleshooting_DescribesEachConditionAndReason(t *testing.T) {
	described := slices.Clone(well)
	for _, page := range glob(t, "docs/*.md") {
		if page == "docs/architecture.md" || page == "docs/testing.md" {
			continue // they are for others
		}
		for _, span := range codeSpan.FindAllStringSubmatch(read(t, page), -1) {
			described = append(described, regexp.MustCompile(`\w+`).FindAllString(span[1], -1)...)
		}
	}
	for _, file := range sources {
		words := wordOfTrouble.FindAllStringSubmatch(read(t, file), -1)
		if len(words) == 0 {
			t.Errorf("%s has no conditions or reasons any more: name the file that has them here", file)
		}
		for _, word := range words {
			if !slices.Contains(described, word[1]) {
				t.Errorf("%s has %s, which neither docs/troubleshooting.md nor the pages of topics describe", file, word[1])
			}
		}
	}
}

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

func TestDocuments_NameFieldsThatExist(t *testing.T) {
	kinds, named := customKinds(t), 0
	for _, file := range pages(t) {
		for _, found := range fieldPattern.FindAllStringSubmatch(read(t, file), -1) {
			named++
			name := found[1] + strings.ReplaceAll(found[2], "[]", "")
			path := strings.Split(name, ".")
			known := slices.Contains(kubernetesFields, name)
			if path[0] == "cluster" { // is the spec of one kind
				known = hasField(kinds["StorageCluster"].Schema, append([]string{"spec"}, path[1:]...))
			}
			for _, has := range kinds {
				known = known || hasField(has.Schema, path)
			}
			if !known {
				t.Errorf("%s names %s, which no kind has", file, name)
			}
		}
	}
	if named < 150 {
		t.Errorf("%d fields are found in the documents: is the pattern still right?", named)
	}
}
