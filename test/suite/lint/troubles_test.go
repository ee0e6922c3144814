package lint

import (
	"regexp"
	"testing"
)

// well are conditions and reasons that report nothing that a user looks up.
var well = map[string]bool{
	"Available": true, "Complete": true, "Healthy": true, "InPlace": true, "PoliciesInPlace": true, "Progressing": true,
	"JobCompleted": true, "UpgradeComplete": true, "Waiting": true, // for another upgrade
	"Ready": true, "Restored": true, "RollingOut": true, "Serving": true, "UpToDate": true, "Growing": true,
}

// sources are the files that have the words of conditions and events.
var sources = []string{
	"api/v1beta1/names.go", "api/v1beta1/shared.go", "operator/cluster/status.go", "operator/cluster/protection.go", "operator/cluster/inline.go",
	"operator/nfsserver/status.go", "operator/nodejob/conclude.go", "operator/upgrade/plan.go", "kube/apply/stranger.go",
}

var wordOfTrouble = regexp.MustCompile(`(?m)^\s*(?:const )?(?:[Rr]eason\w+|\w+Condition|Phase\w+ Phase|Error\w+ ErrorCode)\s*= "(\w+)"`)

func TestTroubleshooting_DescribesEachConditionAndReason(t *testing.T) {
	text := ""
	for _, page := range glob(t, "docs/*.md") {
		if page != "docs/architecture.md" && page != "docs/testing.md" { // they are for others
			text += read(t, page)
		}
	}
	spans := map[string]bool{}
	for _, span := range codeSpan.FindAllStringSubmatch(text, -1) {
		for _, word := range regexp.MustCompile(`\w+`).FindAllString(span[1], -1) {
			spans[word] = true
		}
	}
	for _, file := range sources {
		words := wordOfTrouble.FindAllStringSubmatch(read(t, file), -1)
		if len(words) == 0 {
			t.Errorf("%s has no conditions or reasons any more: name the file that has them here", file)
		}
		for _, word := range words {
			if !well[word[1]] && !spans[word[1]] {
				t.Errorf("%s has %s, which neither docs/troubleshooting.md nor the pages of topics describe", file, word[1])
			}
		}
	}
}
