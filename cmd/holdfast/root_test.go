package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// every visits all commands.
func every(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)
	for _, verb := range c.Commands() {
		every(verb, visit)
	}
}

var quoted = regexp.MustCompile(`"[^"]*"|'[^']*'`)

// commandLines finds the calls of the program in lines as a shell reads them.
func commandLines(text string) (all []string) {
	text = strings.ReplaceAll(text, "\\\n", " ")
	text = quoted.ReplaceAllString(text, "quoted")
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, " #")
		for command := range strings.FieldsFuncSeq(line, func(r rune) bool { return strings.ContainsRune("|;<>()&$", r) }) {
			command = strings.TrimSpace(command)
			for _, name := range []string{"kubectl holdfast ", "bin/holdfast ", "holdfast "} {
				if rest, ok := strings.CutPrefix(strings.TrimPrefix(command, "do "), name); ok {
					all = append(all, rest)
					break
				}
			}
		}
	}
	return all
}

// accept parses a command line and runs nothing.
func accept(line string) error {
	root := newRoot()
	c, rest, err := root.Find(strings.Fields(line))
	if err != nil {
		return err
	}
	if err := c.ParseFlags(rest); err != nil {
		return c.FlagErrorFunc()(c, err)
	}
	if err := c.ValidateArgs(c.Flags().Args()); err != nil {
		return err
	}
	return refuseUnusedFlags(c, nil)
}

func TestExamples_OfEveryCommandAreAccepted(t *testing.T) {
	every(newRoot(), func(c *cobra.Command) {
		lines := commandLines(c.Example)
		if len(lines) == 0 {
			t.Errorf("%s has no example", c.CommandPath())
		}
		for _, line := range lines {
			if err := accept(line); err != nil {
				t.Errorf("%s: holdfast %s: %v", c.CommandPath(), line, err)
			}
		}
	})
	for _, wrong := range []string{"status --contxt x", "volumes undelete v", "standalone --context x"} {
		if accept(wrong) == nil {
			t.Errorf("holdfast %s is accepted, so this test checks nothing", wrong)
		}
	}
}

func TestExamples_OfTheDocumentsAreAccepted(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	found := 0
	for _, page := range append(pages, "../../README.md", "../../CONTRIBUTING.md") {
		text := check.Got(os.ReadFile(page))(t)
		for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", " ")) {
			if !strings.HasPrefix(line, "    ") {
				continue
			}
			for _, command := range commandLines(strings.Trim(line, " ")) {
				found++
				command = strings.NewReplacer("[", "", "]", "", "...", "", "NAMESPACE", "namespace", "NAME", "name").Replace(command)
				if err := accept(command); err != nil {
					t.Errorf("%s: holdfast %s: %v", page, command, err)
				}
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d commands were found", found)
	}
}

func TestFlags_OfAClusterMayPrecedeTheCommand(t *testing.T) {
	kubeconfig := reachable(t, running(t, v1beta1.ClusterRunning).URL())
	for _, line := range []string{
		"--context here status --kubeconfig " + kubeconfig,
		"--kubeconfig " + kubeconfig + " --context=here -n holdfast-system status",
		"--kubeconfig=" + kubeconfig + " -nholdfast-system volumes --context here list",
		"-o json --kubeconfig " + kubeconfig + " --context here snapshots",
	} {
		if out, err := callLine(t, line); err != nil {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
	}
}

func TestFlags_OfAClusterAreIgnoredWhereNothingIsContacted(t *testing.T) {
	for _, flag := range []string{"--context nowhere", "--kubeconfig /nowhere", "-n nowhere"} {
		for _, command := range []string{"version", "version -o json", "render", "completion", "help status", "help"} {
			for _, line := range []string{flag + " " + command, command + " " + flag} {
				if out, err := callLine(t, line); err != nil {
					t.Errorf("%s: %v\n%s", line, err, out)
				}
			}
		}
	}
}

var camelCase = regexp.MustCompile(`^[a-z][a-zA-Z0-9]*$`)

// fieldsOf are the names of all fields, at any depth.
func fieldsOf(value any) (names []string) {
	switch value := value.(type) {
	case []any:
		for _, one := range value {
			names = append(names, fieldsOf(one)...)
		}
	case map[string]any:
		for name, one := range value {
			names = append(append(names, name), fieldsOf(one)...)
		}
	}
	return names
}

func TestOutput_YAMLHasWhatJSONHasAndEachFieldIsDocumented(t *testing.T) {
	page := check.Got(os.ReadFile("../../docs/command-line.md"))(t)
	flags := stored(t)
	for _, line := range []string{"status", "doctor", "volumes", "volumes list", "volumes trash", "snapshots list", "version"} {
		asJSON, _ := callLine(t, line+" -ojson", flags...)
		asYAML, _ := callLine(t, line+" --output=yaml", flags...)
		var fromJSON, fromYAML any
		if err := json.Unmarshal([]byte(asJSON), &fromJSON); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, asJSON)
		}
		if err := yaml.Unmarshal([]byte(asYAML), &fromYAML); err != nil || !reflect.DeepEqual(fromJSON, fromYAML) {
			t.Errorf("%s: %v\n%s\n%s", line, err, asJSON, asYAML)
		}
		fields := fieldsOf(fromJSON)
		if len(fields) == 0 {
			t.Errorf("%s has no fields: %s", line, asJSON)
		}
		for _, field := range fields {
			if !camelCase.MatchString(field) || !strings.Contains(string(page), "`"+field+"`") {
				t.Errorf("%s: the field %q is not in camelCase, or not in docs/command-line.md", line, field)
			}
		}
	}
}

func TestOutput_NamesAreThoseThatKubectlTakes(t *testing.T) {
	flags := stored(t)
	for line, want := range map[string]string{
		"volumes": "volume.holdfast.dev/pvc-1\n", "volumes trash": "pvc-9\n", "snapshots list": "snapshot.holdfast.dev/s-1\n",
		"get vol": "volume.holdfast.dev/pvc-1\n", "get snap": "snapshot.holdfast.dev/s-1\n",
	} {
		if out, err := callLine(t, line+" -o name", flags...); err != nil || out != want {
			t.Errorf("%s: %v, %q instead of %q", line, err, out, want)
		}
	}
	out, err := call(t, "render", "-o", "name")
	if err != nil || !slices.Contains(strings.Split(out, "\n"), "storageclass.storage.k8s.io/holdfast") {
		t.Errorf("render: %v\n%s", err, out)
	}
}
