package lint

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/documents"
)

type shell struct{ Run struct{ Shell string } }

// workflow is what is read of one here.
type workflow struct {
	Defaults shell
	Jobs     map[string]struct {
		Container json.RawMessage
		Defaults  shell
		Steps     []struct{ Name, Uses, Run, Shell string }
	}
}

// script checks what a step runs.
func (r *reader) script(t *testing.T, text string) (wrong []error) {
	t.Helper()
	if strings.Contains(text, "${{") {
		wrong = append(wrong, errors.New("an expression becomes a part of the script: give it in env"))
	}
	parse := exec.CommandContext(t.Context(), "bash", "-n")
	parse.Stdin = strings.NewReader(text)
	if out, err := parse.CombinedOutput(); err != nil {
		wrong = append(wrong, fmt.Errorf("%w: %s", err, out))
	}
	for _, c := range documents.Shell(text) {
		said := strings.Join(c.Words, " ")
		if c.Words[0] == "env" { // and what it sets
			c.Words = from(c.Words[1:], func(word string) bool { return !strings.Contains(word, "=") })
		}
		if len(c.Words) > 1 && c.Words[0] == "make" {
			c.Words = append([]string{"make"}, from(c.Words[1:], func(word string) bool { return !strings.HasPrefix(word, "-") })...)
		}
		if len(c.Words) == 0 {
			continue
		}
		if err := r.command(c); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", said, err))
		}
	}
	return wrong
}

// from are the words from the first that is so.
func from(words []string, so func(string) bool) []string {
	first := slices.IndexFunc(words, so)
	if first < 0 {
		return nil
	}
	return words[first:]
}

func TestWorkflows_RunWhatIsThere(t *testing.T) {
	r := newReader(t)
	for _, file := range glob(t, ".github/workflows/*") {
		var w workflow
		check.OK(t, yaml.Unmarshal([]byte(read(t, file)), &w))
		scripts := 0
		for name, job := range w.Jobs {
			for i, step := range job.Steps {
				at := fmt.Sprintf("%s: step %d of %s", file, i+1, name)
				if (step.Run == "") == (step.Uses == "") {
					t.Errorf("%s: it has neither run nor uses, or both", at)
				}
				if step.Run == "" {
					continue
				}
				scripts++
				if shell := step.Shell + job.Defaults.Run.Shell + w.Defaults.Run.Shell; shell != "bash" && (shell != "" || job.Container != nil) {
					t.Errorf("%s: its shell is %q, and in a container without one sh: set defaults.run.shell to bash", at, shell)
				}
				for _, err := range r.script(t, step.Run) {
					t.Errorf("%s: %v", at, err)
				}
			}
		}
		if scripts == 0 {
			t.Errorf("%s has no script", file)
		}
	}
}
