package lint

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/parameters"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/documents"
)

var (
	// notProse is code, headings, rows of tables and links of a page, and where "kind" is no word of Kubernetes.
	notProse = regexp.MustCompile("(?ms)^```.*?^```|^(?: {4}|#|\\|)[^\n]*|`[^`\n]*`|\\[[^\\]\n]*\\]\\([^)\n]*\\)|\\b[Bb]oth kinds\\b|\\b[Kk]inds? of (?:limit|storage|volume)")
	// firstUses find a word of the pages with the name that Kubernetes has for it.
	firstUses = map[string]*regexp.Regexp{
		"PVC":          regexp.MustCompile(`\b[Cc]laims?\b(?: \(PVCs?\))?`),
		"CRD":          regexp.MustCompile(`\b[Kk]inds?\b(?: \(CRDs?\))?`),
		"StorageClass": regexp.MustCompile(`\bStorageClass|\b[Cc]lass(?:es)?\b(?: *\(StorageClass(?:es)?\))?`),
	}
)

// Readers search a page for the word of Kubernetes.
func TestDocuments_SayTheWordOfKubernetesWhereTheirOwnStandsFirst(t *testing.T) {
	for name, use := range firstUses {
		said := 0
		for _, file := range pages(t) {
			first := use.FindString(notProse.ReplaceAllString(read(t, file), ""))
			if first == "" {
				continue
			}
			if said++; !strings.Contains(first, name) {
				t.Errorf("%s: write %s (%s) where the word stands first", file, first, name)
			}
		}
		if said < 15 {
			t.Errorf("only %d pages speak of a %s", said, name)
		}
	}
}

// userCommands are those of the program that are no process of a cluster.
var userCommands = []string{"bench", "cleanup", "describe", "disks", "doctor", "get", "render", "snapshots", "status", "support-bundle", "top", "volumes"}

func TestDocuments_SayHowToGetTheProgramWhoseCommandsTheyShow(t *testing.T) {
	_, developers, _ := strings.Cut(read(t, "docs/README.md"), "\n## Develop\n")
	said := 0
	for _, file := range pages(t) {
		text := read(t, file)
		if file == "docs/command-line.md" || strings.Contains(developers, "]("+strings.TrimPrefix(file, "docs/")+")") {
			continue
		}
		isUsers := func(c documents.Call) bool { return slices.Contains(userCommands, c.Words[1]) }
		if !slices.ContainsFunc(documents.Of(text, "holdfast"), isUsers) {
			continue
		}
		if said++; !strings.Contains(text, "command-line.md#getting-it") {
			t.Errorf("%s has commands of holdfast: link command-line.md#getting-it at the first", file)
		}
	}
	if said < 20 {
		t.Errorf("only %d pages have commands", said)
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
		if slices.Contains([]string{"docs/architecture.md", "docs/glossary.md", "docs/testing.md"}, page) {
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

// wordsOfOthers are those of Kubernetes, and of the programs that it comes with.
var wordsOfOthers = []string{
	"Aborted", "ContainerCreating", "FailedAttachVolume", "FailedDetachVolume", "FailedMount", "Insufficient holdfast.dev/loop-set", "No space left on device", "Permission denied",
	"ProvisioningFailed", "ResourceExhausted", "Terminating", "access denied", "denied the request", "driver name csi.holdfast.dev not found in the list of registered CSI drivers", "is not a shared mount",
	"node(s) had volume node affinity conflict", `storageclass.storage.k8s.io "..." not found`, `violates PodSecurity "baseline"`, "waiting for first consumer to be created before binding",
}

func TestTroubleshooting_QuotesWhatIsSaid(t *testing.T) {
	var source strings.Builder
	for _, file := range files(t, ".go") {
		if !strings.HasSuffix(file, "_test.go") {
			source.WriteString(read(t, file))
		}
	}
	headings := strings.Join(regexp.MustCompile(`(?m)^### .*$`).FindAllString(read(t, "docs/troubleshooting.md"), -1), "\n")
	quoted := codeSpan.FindAllStringSubmatch(headings, -1)
	for _, span := range quoted {
		for part := range strings.SplitSeq(strings.ReplaceAll(span[1], ": ", "..."), "...") {
			if !slices.Contains(wordsOfOthers, span[1]) && !strings.Contains(source.String(), part) {
				t.Errorf("nothing says %q, which docs/troubleshooting.md quotes", part)
			}
		}
	}
	if len(quoted) < 50 {
		t.Errorf("only %d quotations were found", len(quoted))
	}
}

// fieldPattern finds a field that a page names, as in `spec.pools[].path: /srv`, or a value of the chart.
var fieldPattern = regexp.MustCompile("`(spec|status|cluster|controller|crds|global|images?|monitoring|node)((?:\\.[A-Za-z]+(?:\\[\\])?)+)[`: ={]")

// kubernetesFields are fields of its own kinds that pages name.
var kubernetesFields = []string{"spec.nodeName", "spec.nodeAffinity", "spec.podCIDRs", "status.hostIP"}

// hasField says whether a schema has a field.
func hasField(schema map[string]any, path []string) bool {
	if items, is := schema["items"].(map[string]any); is {
		return hasField(items, path)
	}
	if schema["const"] != nil { // "set controller.replicas instead"
		return false
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
	kinds, values, named := customKinds(t), map[string]any{}, 0
	check.OK(t, json.Unmarshal([]byte(read(t, "deploy/chart/values.schema.json")), &values))
	for _, file := range pages(t) {
		for _, found := range fieldPattern.FindAllStringSubmatch(read(t, file), -1) {
			named++
			name := found[1] + strings.ReplaceAll(found[2], "[]", "")
			path := strings.Split(name, ".")
			known := slices.Contains(kubernetesFields, name) || hasField(values, path) || hasField(kinds["StorageCluster"].Schema, append([]string{"spec"}, path...))
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
