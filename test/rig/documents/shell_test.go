package documents

import (
	"slices"
	"strings"
	"testing"
)

func TestShell_ScriptIsSplitIntoItsCommands(t *testing.T) {
	script := "A=1 make x | kubectl apply -f - # why\n" +
		"kubectl patch a b \\\n  -p '{\"a\":\"'\"$id\"'\"}' && sudo go test ./x\n" +
		"id=$(kubectl get c)\nwhile read -r name; do echo \"$(date)\" >>left; done\n" +
		"kubectl create -f - <<<'{\"a\":1}'\nkubectl apply -f - <<END\na: 1\nEND\nlast"
	var got []string
	for _, c := range Shell(script) {
		got = append(got, strings.Join(c.Words, " ")+"/"+strings.TrimSpace(c.Stdin))
	}
	want := []string{
		"make x/", "kubectl apply -f -/", `kubectl patch a b -p {"a":"$id"}/`, "go test ./x/", "kubectl get c/",
		"read -r name/", "date/", "echo $(date) > > left/", `kubectl create -f -/{"a":1}`, "kubectl apply -f -/a: 1", "last/",
	}
	if id := slices.Index(got, "$()/"); id >= 0 {
		got = slices.Delete(got, id, id+1)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nnot\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
