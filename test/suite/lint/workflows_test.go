package lint

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/holdfast-storage/holdfast/test/rig/documents"
)

type shell struct{ Run struct{ Shell string } }

// workflow is what this test reads of one.
type workflow struct {
	Defaults shell
	Jobs     map[string]struct {
		Container json.RawMessage
		Defaults  shell
		Steps     []struct{ Name, Uses, Run, Shell string }
	}
}

// workflowErrors are what is wrong in a workflow, and how many scripts it has.
func workflowErrors(t *testing.T, text string) (scripts int, wrong []error) {
	t.Helper()
	var w workflow
	if err := yaml.Unmarshal([]byte(text), &w); err != nil {
		return 0, []error{err}
	}
	for name, job := range w.Jobs {
		for i, step := range job.Steps {
			note := func(format string, args ...any) {
				wrong = append(wrong, fmt.Errorf("step %d of %s: "+format, append([]any{i + 1, name}, args...)...))
			}
			if (step.Run == "") == (step.Uses == "") {
				note("it has neither run nor uses, or both")
			}
			if step.Run == "" {
				continue
			}
			scripts++
			shell := step.Shell + job.Defaults.Run.Shell + w.Defaults.Run.Shell
			if shell != "bash" && (shell != "" || job.Container != nil) {
				note("its shell is %q, and in a container without one sh: set defaults.run.shell to bash", shell)
			}
			if strings.Contains(step.Run, "${{") {
				note("an expression becomes a part of the script: give it in env")
			}
			check := exec.CommandContext(t.Context(), "bash", "-n")
			check.Stdin = strings.NewReader(step.Run)
			if out, err := check.CombinedOutput(); err != nil {
				note("%v: %s", err, out)
			}
			for _, c := range documents.Shell(step.Run) {
				if err := newReader(t).inWorkflow(c); err != nil {
					note("%s: %w", strings.Join(c.Words, " "), err)
				}
			}
		}
	}
	return scripts, wrong
}

// inWorkflow checks a command of a workflow.
func (r *reader) inWorkflow(c documents.Call) error {
	if c.Words[0] == "env" { // and what it sets
		rest := c.Words[1:]
		for len(rest) > 0 && strings.Contains(rest[0], "=") {
			rest = rest[1:]
		}
		c.Words = rest
	}
	if len(c.Words) > 0 && c.Words[0] == "make" {
		args := c.Words[1:]
		for len(args) > 0 && strings.HasPrefix(args[0], "-") {
			args = args[1:]
		}
		return r.make(args)
	}
	if len(c.Words) == 0 {
		return nil
	}
	return r.command(c)
}

func TestWorkflows_RunWhatIsThere(t *testing.T) {
	for _, file := range glob(t, ".github/workflows/*") {
		scripts, wrong := workflowErrors(t, read(t, file))
		for _, err := range wrong {
			t.Errorf("%s: %v", file, err)
		}
		if scripts == 0 {
			t.Errorf("%s has no script", file)
		}
	}
}
